//! Notices when failing has become the rule: then something is wrong with the world and not with the events, and
//! sending them all to the tiers or to the dead letters would drain a topic. Pure: it is told the time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::UnixMillis;

/// When failing counts as a storm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StormLimits {
    /// More than this share of the calls within the window failed…
    pub share: f64,
    /// …of at least this many calls.
    pub least: usize,
    /// The window.
    pub window: Duration,
    /// Or this many calls failed in a row.
    pub in_a_row: usize,
}

impl Default for StormLimits {
    fn default() -> Self {
        Self { share: 0.5, least: 500, window: Duration::from_secs(30), in_a_row: 200 }
    }
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It succeeded.
    Succeeded,
    /// It failed, for a while or for good.
    Failed,
}

/// How many calls in a row must succeed to end a storm that is a matter of share.
const CALM: usize = 20;

/// The guard. A storm of failures in a row ends with the first call that succeeds, one of too large a share with some in a
/// row.
#[derive(Debug)]
pub struct StormGuard {
    limits: StormLimits,
    /// The calls of the window by second: second, calls, failures.
    seconds: VecDeque<(i64, usize, usize)>,
    in_a_row: usize,
    successes_in_a_row: usize,
    /// While it rages: how many successes in a row end it.
    rages_until: Option<usize>,
}

impl StormGuard {
    /// A calm guard.
    pub fn new(limits: StormLimits) -> Self {
        Self { limits, seconds: VecDeque::new(), in_a_row: 0, successes_in_a_row: 0, rages_until: None }
    }

    /// A call has ended.
    pub fn note(&mut self, call: Call, now: UnixMillis) {
        if call == Call::Succeeded {
            self.in_a_row = 0;
            self.successes_in_a_row += 1;
            if self.rages_until.is_some_and(|calm| self.successes_in_a_row >= calm) {
                // What was counted in the storm says nothing about the time after it.
                self.rages_until = None;
                self.seconds.clear();
            }
        } else {
            self.in_a_row += 1;
            self.successes_in_a_row = 0;
        }
        let second = now.0.div_euclid(1_000);
        let oldest = now.minus(self.limits.window).0.div_euclid(1_000);
        while self.seconds.front().is_some_and(|(at, _, _)| *at <= oldest) {
            self.seconds.pop_front();
        }
        match self.seconds.back_mut() {
            // A clock that went back counts into the latest second.
            Some((at, calls, failures)) if *at >= second => {
                *calls += 1;
                *failures += usize::from(call == Call::Failed);
            }
            _ => self.seconds.push_back((second, 1, usize::from(call == Call::Failed))),
        }
        if call == Call::Failed && self.share_is_reached() {
            self.rages_until = Some(CALM);
        } else if self.in_a_row >= self.limits.in_a_row {
            self.rages_until.get_or_insert(1);
        }
    }

    /// Whether failing is the rule.
    pub fn rages(&self) -> bool {
        self.rages_until.is_some()
    }

    fn share_is_reached(&self) -> bool {
        let (calls, failures) =
            self.seconds.iter().fold((0, 0), |(calls, failures), (_, c, f)| (calls + c, failures + f));
        calls >= self.limits.least && failures as f64 > self.limits.share * calls as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn note(guard: &mut StormGuard, call: Call, times: usize, at_second: u64) {
        (0..times).for_each(|_| guard.note(call, NOW.plus(Duration::from_secs(at_second))));
    }

    #[test]
    fn two_hundred_failures_in_a_row_are_a_storm_and_one_success_ends_it() {
        let mut guard = StormGuard::new(StormLimits::default());
        note(&mut guard, Call::Failed, 199, 0);
        assert!(!guard.rages());
        note(&mut guard, Call::Failed, 1, 0);
        assert!(guard.rages());
        note(&mut guard, Call::Succeeded, 1, 0);
        assert!(!guard.rages());
        note(&mut guard, Call::Failed, 199, 0);
        assert!(!guard.rages(), "it is counted anew");
    }

    #[test]
    fn more_than_half_of_five_hundred_within_the_window_are_a_storm() {
        let mut guard = StormGuard::new(StormLimits::default());
        for _ in 0..250 {
            note(&mut guard, Call::Succeeded, 1, 0);
            note(&mut guard, Call::Failed, 1, 10);
        }
        assert!(!guard.rages(), "half is not more than half");
        note(&mut guard, Call::Failed, 1, 20);
        assert!(guard.rages());
        note(&mut guard, Call::Succeeded, 19, 20);
        assert!(guard.rages(), "single successes are to be expected at such a share");
        note(&mut guard, Call::Succeeded, 1, 20);
        assert!(!guard.rages());
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut guard = StormGuard::new(StormLimits::default());
        for _ in 0..400 {
            note(&mut guard, Call::Succeeded, 1, 0);
            note(&mut guard, Call::Failed, 1, 0);
        }
        note(&mut guard, Call::Failed, 100, 31);
        assert!(!guard.rages());
    }
}
