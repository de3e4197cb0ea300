//! Puts a lane's mark into the store: at its start, at its release, and while something is searched. It decides nothing
//! about the search.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{FutureExt, select};

use crate::event::Event;
use crate::ports::{
    Arrival, EventHandler, LaneLog, LaneMark, MarkAnswer, Owner, Search, Standing, StoreError, UnitOfWorkFactory,
    error_chain,
};
use crate::record::{Assignment, Committable, Offset};

use super::backoff::{Backoff, jitter};
use super::consumer::Pipeline;
use super::question::ask;

/// How long a release waits for its mark. Without one the next owner searches for nothing.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// The mark as this owner wrote it last.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    lane: LaneLog,
    owner: Owner,
    revision: i64,
    /// What was given up and may be delivered again.
    given_up: Vec<Offset>,
}

/// A lane that is owned.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) marker: Marker,
    pub(super) search: Option<Search>,
}

/// What the mark that was found says of the last owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastOwner {
    /// Nobody, or one that let go, or an earlier assignment of this very process.
    Lives,
    Died,
}

impl Marker {
    /// Whether the record was given up before. It is not run again.
    pub(super) fn has_given_up(&self, offset: Offset) -> bool {
        self.given_up.contains(&offset)
    }

    /// The record kills whoever handles it. The next mark tells so.
    pub(super) fn give_up(&mut self, offset: Offset) {
        if !self.has_given_up(offset) {
            self.given_up.push(offset);
        }
    }

    fn last_owner(&self, found: &LaneMark) -> LastOwner {
        match found.standing {
            Standing::Owned if found.owner.process != self.owner.process => LastOwner::Died,
            Standing::Owned | Standing::Clean => LastOwner::Lives,
        }
    }

    fn mark(&self, standing: Standing, search: Option<Search>) -> LaneMark {
        let given_up = self.given_up.clone();
        LaneMark { owner: self.owner, standing, revision: self.revision, search, given_up }
    }
}

/// Takes the lane, which will start at this position, and says what is to be searched.
pub(super) fn take<E, F, H>(
    pipeline: &Pipeline<E, F, H>,
    assignment: &Assignment,
    arrival: &Arrival,
    position: Committable,
) -> impl Future<Output = Result<Taken, StoreError>> + Send + 'static + use<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    let lane = LaneLog {
        group: pipeline.settings.topology.group.clone(),
        lane: assignment.lane.clone(),
        identity: arrival.identity.clone(),
    };
    let owner = Owner { process: pipeline.process, epoch: assignment.epoch.0 };
    let (store, end) = (Arc::clone(&pipeline.batch.store), arrival.end);
    let (batch_max, unclean) = (pipeline.settings.batch_max, pipeline.metrics.unclean_starts.clone());
    ask(&*pipeline.runtime, "mark", async move {
        let found = store.mark(&lane).await?;
        let revision = found.as_ref().map_or(0, |found| found.revision + 1);
        let given_up = found.as_ref().map_or_else(Vec::new, |found| found.given_up.clone());
        let given_up = given_up.into_iter().filter(|offset| offset.0 >= position.0).collect();
        let marker = Marker { lane, owner, revision, given_up };
        let from = found.as_ref().map(|found| found.owner);
        let search = match found {
            None => None,
            Some(found) if marker.last_owner(&found) == LastOwner::Died => {
                unclean.increment(1);
                let search = Search::after_death(found.search, position, end, batch_max);
                tracing::warn!(lane = %marker.lane.lane, window = search.window, left = search.left,
                    suspect = ?search.suspect, "the last owner of the lane died while it owned it");
                Some(search)
            }
            Some(found) => found.search.map(Search::handed_over),
        };
        match store.set_mark(&marker.lane, from, &marker.mark(Standing::Owned, search.clone())).await? {
            MarkAnswer::Written => Ok(Taken { marker, search }),
            MarkAnswer::Superseded => Err(StoreError::conflict("another owner marked the lane at the same time")),
        }
    })
}

/// Writes how far the search has come; it asks until it has an answer. Dropping it may leave the mark written or not.
pub(super) fn note<E, F, H>(
    pipeline: &Arc<Pipeline<E, F, H>>,
    assignment: &Assignment,
    marker: &mut Marker,
    search: Option<Search>,
) -> impl Future<Output = MarkAnswer> + Send + 'static + use<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    marker.revision += 1;
    let (marker, pipeline, assignment) = (marker.clone(), Arc::clone(pipeline), assignment.clone());
    async move {
        let mut failures = 0;
        loop {
            match write(&pipeline, &marker, marker.mark(Standing::Owned, search.clone())).await {
                Ok(answer) => {
                    if failures > 0 {
                        pipeline.health.clear(&assignment);
                    }
                    return answer;
                }
                Err(error) => {
                    failures += 1;
                    pipeline.health.report(&assignment, error_chain(&error));
                    pipeline.runtime.sleep(Backoff::INFRASTRUCTURE.delay(failures, jitter())).await;
                }
            }
        }
    }
}

/// Marks that nothing of the lane runs any more, if it is still this owner's.
pub(super) async fn release<E, F, H>(pipeline: &Pipeline<E, F, H>, mut marker: Marker, search: Option<Search>)
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    marker.revision += 1;
    // Whatever is settled is committed before the lane is given away. A record that is read again after that is meant to be.
    marker.given_up.clear();
    let mark = marker.mark(Standing::Clean, search.map(Search::handed_over));
    let written = write(pipeline, &marker, mark).map(|answer| match answer {
        Ok(MarkAnswer::Written) => {}
        Ok(MarkAnswer::Superseded) => tracing::debug!(lane = %marker.lane.lane, "the lane is another owner's"),
        Err(error) => tracing::warn!(lane = %marker.lane.lane, error = error_chain(&error),
            "the lane is not marked as given away, its next owner takes this for a death"),
    });
    select(written.boxed(), pipeline.runtime.sleep(RELEASE_LIMIT)).await;
}

fn write<E, F, H>(
    pipeline: &Pipeline<E, F, H>,
    marker: &Marker,
    mark: LaneMark,
) -> impl Future<Output = Result<MarkAnswer, StoreError>> + Send + 'static + use<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    let (store, lane, owner) = (Arc::clone(&pipeline.batch.store), marker.lane.clone(), marker.owner);
    ask(&*pipeline.runtime, "mark", async move { store.set_mark(&lane, Some(owner), &mark).await })
}
