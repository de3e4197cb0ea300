//! How long claims are kept, and the task that lets go of older ones. What may be removed is decided by the store; the
//! kernel refuses what it can no longer tell (D-9).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use core_delivery::claim::ConsumerGroup;
use core_delivery::delivery::Health;
use core_delivery::ports::{Runtime, StoreError, error_chain};
use infra_postgres::{Removal, Retention, advance_floor, delete_expired_claims, drop_expired_partitions};
use sqlx::PgPool;
use tokio::sync::watch;

use crate::config::ClaimExpiry;

/// No claim is kept for less.
pub const SHORTEST: Duration = Duration::from_secs(7 * 86_400);

/// `auto` keeps no claim for longer.
const LONGEST: Duration = Duration::from_secs(35 * 86_400);

/// How often old claims are let go of.
const INTERVAL: Duration = Duration::from_secs(86_400);

/// After a failure it is tried again this soon.
const AFTER_FAILURE: Duration = Duration::from_secs(600);

/// How many claims are deleted in one transaction.
const BATCH: u32 = 10_000;

/// How long claims are kept if the topics decide: as long as an event can still come back, which is the retention of
/// the source, the slowest tier and the dead letters together, given in this order (`None` is for ever); at least 7
/// days, at most 35. Without topics, because they could not be looked at, it is the most.
pub fn auto(source_tiers_and_dead_letters: &[Option<Duration>]) -> Duration {
    let Some((dead_letters, [source, tiers @ ..])) = source_tiers_and_dead_letters.split_last() else {
        return LONGEST;
    };
    let kept = |retention: &Option<Duration>| retention.unwrap_or(LONGEST);
    let slowest_tier = tiers.iter().map(kept).max().unwrap_or_default();
    kept(source).saturating_add(slowest_tier).saturating_add(kept(dead_letters)).clamp(SHORTEST, LONGEST)
}

/// Lets go of old claims once a day: moves the floor, and removes what lies below the one that has stood long enough.
pub struct ExpiryTask {
    /// The maintenance pool.
    pub pool: PgPool,
    /// Whose floor is moved.
    pub group: ConsumerGroup,
    /// How long claims are kept.
    pub retention: Retention,
    /// How they are removed.
    pub expiry: ClaimExpiry,
    /// Time.
    pub runtime: Arc<dyn Runtime>,
    /// Where it says what holds it up.
    pub health: Health,
}

impl ExpiryTask {
    /// Runs until `stop` is set or dropped.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        const PLACE: &str = "claim expiry";
        loop {
            let wait = match self.once(&stop).await {
                Ok(()) => {
                    self.health.clear(PLACE);
                    INTERVAL
                }
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "old claims are not removed");
                    self.health.report(PLACE, error_chain(&error));
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = self.runtime.sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn once(&self, stop: &watch::Receiver<bool>) -> Result<(), StoreError> {
        advance_floor(&self.pool, &self.group, self.retention, self.runtime.now()).await?;
        match self.expiry {
            ClaimExpiry::Partitions => {
                if let Removal::Done(outcome) = drop_expired_partitions(&self.pool, self.retention).await? {
                    tracing::info!(
                        dropped = outcome.dropped.len(),
                        kept = outcome.kept.len(),
                        "old partitions removed"
                    );
                }
            }
            ClaimExpiry::Delete => {
                let stop = stop.clone();
                let progress = move |_: &_| match *stop.borrow() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                };
                delete_expired_claims(&self.pool, self.retention, BATCH, progress).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn topics(days: &[Option<u32>]) -> Vec<Option<Duration>> {
        days.iter().map(|days| days.map(|days| days * DAY)).collect()
    }

    #[test]
    fn claims_are_kept_for_as_long_as_an_event_can_come_back() {
        assert_eq!(auto(&topics(&[Some(7), Some(7), Some(8), Some(7), Some(14)])), 29 * DAY);
        assert_eq!(auto(&topics(&[Some(7), Some(14)])), 21 * DAY, "without tiers");
    }

    #[test]
    fn never_for_less_than_seven_days_and_never_for_more_than_thirty_five() {
        assert_eq!(auto(&topics(&[Some(1), Some(1), Some(1)])), 7 * DAY);
        assert_eq!(auto(&topics(&[None, Some(1), Some(1)])), 35 * DAY);
        assert_eq!(auto(&topics(&[Some(30), Some(7), Some(30)])), 35 * DAY);
        assert_eq!(auto(&[]), 35 * DAY, "topics that cannot be looked at");
    }
}
