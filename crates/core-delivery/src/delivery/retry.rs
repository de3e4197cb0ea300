//! Where a failed event goes next. Pure.

use std::time::Duration;

use super::topology::Stage;

/// The delays of the retry tiers, in the order in which an event visits them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySchedule {
    delays: Vec<Duration>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this tier, for its whole delay.
    Tier(usize),
    /// No tier is left.
    Exhausted,
}

impl RetrySchedule {
    /// A schedule; without delays every transient failure is a dead letter at once.
    pub fn new(delays: Vec<Duration>) -> Self {
        Self { delays }
    }

    /// Where an event goes that failed at `stage`: the next tier, or the first later one that is as long as the
    /// other side asked for, at most the last. An event never goes back to an earlier tier, so it ends.
    pub fn route(&self, stage: Stage, retry_after: Option<Duration>) -> Route {
        let next = match stage {
            Stage::Source => 0,
            Stage::Tier(index) => index + 1,
        };
        let Some(left) = self.delays.get(next..).filter(|left| !left.is_empty()) else {
            return Route::Exhausted;
        };
        let wanted = retry_after.unwrap_or_default();
        let skip = left.iter().position(|delay| *delay >= wanted).unwrap_or(left.len() - 1);
        Route::Tier(next + skip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(values: &[u64]) -> RetrySchedule {
        RetrySchedule::new(values.iter().copied().map(Duration::from_secs).collect())
    }

    #[test]
    fn an_event_visits_the_tiers_in_turn_and_then_is_exhausted() {
        let schedule = seconds(&[10, 60, 600]);
        assert_eq!(schedule.route(Stage::Source, None), Route::Tier(0));
        assert_eq!(schedule.route(Stage::Tier(0), None), Route::Tier(1));
        assert_eq!(schedule.route(Stage::Tier(1), None), Route::Tier(2));
        assert_eq!(schedule.route(Stage::Tier(2), None), Route::Exhausted);
        assert_eq!(seconds(&[]).route(Stage::Source, None), Route::Exhausted);
    }

    #[test]
    fn retry_after_picks_the_first_tier_that_is_long_enough() {
        let schedule = seconds(&[10, 60, 600]);
        let after = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(schedule.route(Stage::Source, after(10)), Route::Tier(0));
        assert_eq!(schedule.route(Stage::Source, after(11)), Route::Tier(1));
        assert_eq!(schedule.route(Stage::Source, after(3_600)), Route::Tier(2));
        assert_eq!(schedule.route(Stage::Tier(1), after(1)), Route::Tier(2));
    }

    proptest! {
        #[test]
        fn every_event_ends_after_at_most_as_many_hops_as_tiers(
            delays in prop::collection::vec(0_u64..1_000, 0..6),
            wishes in prop::collection::vec(prop::option::of(0_u64..2_000), 10),
        ) {
            let schedule = seconds(&delays);
            let (mut stage, mut hops) = (Stage::Source, 0);
            for wish in wishes {
                match schedule.route(stage, wish.map(Duration::from_secs)) {
                    Route::Exhausted => break,
                    Route::Tier(index) => {
                        prop_assert!(stage < Stage::Tier(index));
                        stage = Stage::Tier(index);
                        hops += 1;
                    }
                }
            }
            prop_assert!(hops <= delays.len());
        }
    }
}
