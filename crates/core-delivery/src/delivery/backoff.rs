//! How long to wait before the next try. Pure: the random part is an argument.

use std::time::Duration;

/// Exponential back-off with full jitter above a floor: between a quarter of the step and the whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first step.
    pub first: Duration,
    /// No step is longer.
    pub longest: Duration,
}

impl Backoff {
    /// For infrastructure that is away: 100 ms to 5 s.
    pub const INFRASTRUCTURE: Self = Self { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

    /// For units that collide: 5 ms to 200 ms.
    pub const CONFLICT: Self = Self { first: Duration::from_millis(5), longest: Duration::from_millis(200) };

    /// The wait before try number `failures + 1`, where `failures` >= 1 tries have failed in a row.
    pub fn delay(self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let step = self.first.saturating_mul(1 << doublings).min(self.longest);
        let floor = step / 4;
        let spread = u64::try_from((step - floor).as_micros()).unwrap_or(u64::MAX);
        floor + Duration::from_micros(random % spread.saturating_add(1))
    }
}

/// A random number for jitter, not for secrets.
pub(super) fn jitter() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_stays_between_a_quarter_of_its_step_and_the_longest(failures in 1_u32..1_000, random: u64) {
            let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
            let delay = backoff.delay(failures, random);
            prop_assert!(delay >= Duration::from_millis(25));
            prop_assert!(delay <= Duration::from_secs(5));
        }

        #[test]
        fn the_floor_doubles_until_the_longest(failures in 1_u32..6) {
            let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
            let expected = Duration::from_millis(25 * 2_u64.pow(failures - 1));
            prop_assert_eq!(backoff.delay(failures, 0), expected);
        }
    }
}
