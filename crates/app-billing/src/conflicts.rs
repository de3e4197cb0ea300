//! What a 409 of the provider means for an event. An earlier call of ours may still be running, and may yet be
//! declined, so nothing is concluded before that is impossible.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use core_order::EventId;

use crate::config::PaymentConflict;

/// More remembered conflicts than this, and the oldest are forgotten: a forgotten one only starts its wait again.
const REMEMBERED: usize = 10_000;

/// Remembers when each event first met a 409.
#[derive(Debug)]
pub struct Conflicts {
    policy: PaymentConflict,
    patience: Duration,
    first: Mutex<HashMap<EventId, Instant>>,
}

/// What to conclude from a 409.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// Try again later.
    TryAgain,
    /// The charge was made by an earlier call.
    Charged,
}

impl Conflicts {
    /// `patience` is the longest time that an earlier call of ours can still be running.
    pub fn new(policy: PaymentConflict, patience: Duration) -> Self {
        Self { policy, patience, first: Mutex::default() }
    }

    /// The event met a 409 now.
    pub fn conclude(&self, event: EventId, now: Instant) -> Conclusion {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *first.entry(event).or_insert(now);
        if self.policy == PaymentConflict::Done && now.duration_since(since) >= self.patience {
            first.remove(&event);
            return Conclusion::Charged;
        }
        if first.len() > REMEMBERED {
            let mut times: Vec<Instant> = first.values().copied().collect();
            let (_, median, _) = times.select_nth_unstable(REMEMBERED / 2);
            let median = *median;
            first.retain(|_, time| *time > median);
        }
        Conclusion::TryAgain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(12);

    #[test]
    fn a_conflict_means_done_only_when_no_earlier_call_can_be_running() {
        let conflicts = Conflicts::new(PaymentConflict::Done, PATIENCE);
        let (event, start) = (EventId::generate(), Instant::now());
        assert_eq!(conflicts.conclude(event, start), Conclusion::TryAgain);
        assert_eq!(conflicts.conclude(event, start + PATIENCE - Duration::from_millis(1)), Conclusion::TryAgain);
        assert_eq!(conflicts.conclude(EventId::generate(), start + PATIENCE), Conclusion::TryAgain);
        assert_eq!(conflicts.conclude(event, start + PATIENCE), Conclusion::Charged);
    }

    #[test]
    fn the_other_policy_never_concludes_anything() {
        let conflicts = Conflicts::new(PaymentConflict::Retry, PATIENCE);
        let (event, start) = (EventId::generate(), Instant::now());
        conflicts.conclude(event, start);
        assert_eq!(conflicts.conclude(event, start + 100 * PATIENCE), Conclusion::TryAgain);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let conflicts = Conflicts::new(PaymentConflict::Done, PATIENCE);
        let start = Instant::now();
        for number in 0..u32::try_from(3 * REMEMBERED).expect("small") {
            conflicts.conclude(EventId::generate(), start + Duration::from_millis(number.into()));
        }
        assert!(conflicts.first.lock().expect("no panic").len() <= REMEMBERED + 1);
    }
}
