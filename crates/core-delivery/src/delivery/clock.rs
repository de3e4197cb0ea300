//! Whether this machine's clock can be believed: the store has one too. Where the two disagree, ids from the future and
//! expired ones cannot be told from others, so nothing is concluded from them.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, UnixMillis};
use crate::ports::{Decoded, EventHandler, UnitOfWorkFactory, error_chain};
use crate::record::{Assignment, Record};

use super::backoff::{Backoff, jitter};
use super::consumer::Pipeline;
use super::health::{Health, Place};
use super::question::ask;

/// Clocks that are further apart than this disagree.
pub const CLOCKS_APART: Duration = Duration::from_secs(60);

/// How soon the clocks are looked at again while they disagree.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Health's entry of one look at the clocks. It is gone with the look: where a lane is lost that looked, nobody else would
/// ever clear it, and the process would stand still for good.
struct Disagreement<'a> {
    health: &'a Health,
    place: Place,
}

impl Drop for Disagreement<'_> {
    fn drop(&mut self) {
        self.health.clear(self.place.clone());
    }
}

/// Says in words by how much two clocks disagree; `Ok` if they agree.
pub fn check_clocks(here: UnixMillis, store: UnixMillis) -> Result<(), String> {
    let (apart, direction) = match here >= store {
        true => (here.since(store), "ahead of"),
        false => (store.since(here), "behind"),
    };
    if apart <= CLOCKS_APART {
        return Ok(());
    }
    Err(format!("this machine's clock is {} s {direction} the database's: set the wrong one right", apart.as_secs()))
}

/// Waits until the clocks agree, and tells whether they did at the first look; while they do not, no unit is started
/// anywhere.
pub(super) async fn until_clocks_agree<E, F, H>(pipeline: &Pipeline<E, F, H>, lane: &Assignment) -> bool
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    let place = Place::of(lane, format!("clock, for {}", lane.lane));
    let disagreement = Disagreement { health: &pipeline.health, place };
    let (mut failures, mut at_once) = (0, true);
    loop {
        let store = Arc::clone(&pipeline.batch.store);
        let asked = ask(&*pipeline.runtime, "clock", async move { store.now().await });
        let wait = match asked.await.map(|store| check_clocks(pipeline.runtime.now(), store)) {
            Ok(Ok(())) => return at_once,
            Ok(Err(reason)) => {
                if std::mem::replace(&mut at_once, false) {
                    tracing::error!(error = reason, "the clocks disagree");
                }
                pipeline.health.halt(disagreement.place.clone(), reason);
                LOOK_AGAIN
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(error = error_chain(&error), "the store's clock is unknown");
                }
                Backoff::INFRASTRUCTURE.delay(failures, jitter())
            }
        };
        pipeline.runtime.sleep(wait).await;
    }
}

/// Whether a record's event lies in the future of this machine's clock as it is now.
pub(super) fn is_from_the_future<E, F, H>(pipeline: &Pipeline<E, F, H>, record: &Record) -> bool
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    match pipeline.decoder.decode(record) {
        Decoded::Event(event) => event.id().made_at() > pipeline.runtime.now().plus(pipeline.settings.clock_skew),
        Decoded::Ignored(_) | Decoded::Undecodable(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_disagree_beyond_a_minute_in_either_direction() {
        let at = |seconds: i64| UnixMillis(seconds * 1_000);
        assert_eq!(check_clocks(at(100), at(160)), Ok(()));
        assert_eq!(check_clocks(at(160), at(100)), Ok(()));
        assert!(check_clocks(at(100), at(161)).expect_err("behind").contains("61 s behind"));
        assert!(check_clocks(at(161), at(100)).expect_err("ahead").contains("61 s ahead of"));
    }
}
