//! Finds out where a lane starts: asks the store, decides, tells the stream and whoever is on call. Unreachable is not
//! unknown: it asks until it has an answer.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::FutureExt;
use futures::select_biased;
use futures::stream::StreamExt;

use crate::event::Event;
use crate::ports::{Arrival, EventHandler, Progress, StoreError, StoredPosition, UnitOfWorkFactory, error_chain};
use crate::record::{Assignment, Committable};

use super::backoff::{Backoff, jitter};
use super::consumer::Pipeline;
use super::lane_driver::{Exit, Input};
use super::lane_mark::{Taken, take};
use super::question::ask;
use super::start::{Alarm, Start, start};

/// How often a refused lane looks whether an operator has said where it starts.
const REFUSED_AGAIN: Duration = Duration::from_secs(5);

/// Where a lane was started.
#[derive(Debug, Clone)]
pub(super) struct Started {
    /// What the store holds for this log.
    pub(super) stored: Option<Committable>,
    /// What the store holds does not describe this log any more.
    pub(super) stored_is_void: bool,
    /// What the first record has to show before it is told.
    pub(super) suspicion: Option<Alarm>,
    /// The lane's mark, and what is to be searched.
    pub(super) taken: Taken,
}

/// Starts the lane, or says how it ended before that.
pub(super) async fn start_lane<E, F, H>(
    pipeline: &Pipeline<E, F, H>,
    assignment: &Assignment,
    arrival: &Arrival,
    inputs: &mut mpsc::UnboundedReceiver<Input>,
) -> Result<Started, Exit>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    let place = assignment.lane.to_string();
    let mut failures = 0;
    loop {
        let asked = stored_positions(pipeline, assignment);
        let answer = select_biased! {
            ended = ended(inputs).fuse() => return Err(ended),
            answer = asked.fuse() => answer,
        };
        let decision = answer.map(|positions| start(arrival, &positions));
        let taken = match decision {
            Ok(Start::At { position, .. }) => {
                let taken = take(pipeline, assignment, arrival, position);
                select_biased! {
                    ended = ended(inputs).fuse() => return Err(ended),
                    taken = taken.fuse() => taken.map(Some),
                }
            }
            Ok(Start::Refused { .. }) | Err(_) => Ok(None),
        };
        let wait = match decision.and_then(|decision| Ok((decision, taken?))) {
            Ok((Start::At { position, stored, alarm }, Some(taken))) => {
                let suspicion = alarm.filter(|alarm| matches!(alarm, Alarm::StoreIsBehind { .. }));
                if let (Some(alarm), None) = (alarm, suspicion) {
                    tell(pipeline, assignment, alarm, position);
                }
                tracing::debug!(lane = %place, position = position.0, "lane starts");
                pipeline.health.clear(assignment);
                pipeline.control.start(assignment, position);
                if arrival.committed != Some(position) && stored.is_some_and(|stored| position <= stored) {
                    // Kafka hears of it now: if nothing more is delivered, nothing else would tell it.
                    pipeline.control.progress(assignment, Progress { position, records: 0, bytes: 0 });
                }
                let stored_is_void = matches!(alarm, Some(Alarm::PastTheEnd { .. }));
                return Ok(Started { stored, stored_is_void, suspicion, taken });
            }
            Ok((Start::At { .. }, None)) => unreachable!("a lane that starts was taken"),
            Ok((Start::Refused { committed }, _)) => {
                let reason = format!(
                    "the group has committed offset {} and the database holds no position: if this database holds the \
                     claims of what was consumed, take Kafka's offsets over with `positions import`, else name the \
                     position with `positions set`",
                    committed.0
                );
                if failures == 0 {
                    tracing::error!(lane = %place, error = reason, "lane not started");
                }
                failures += 1;
                pipeline.health.report(assignment, reason);
                REFUSED_AGAIN
            }
            Err(error) => {
                failures += 1;
                let reason = error_chain(&error);
                if failures == 1 {
                    tracing::warn!(lane = %place, error = reason, "position unknown, lane waits");
                }
                pipeline.health.report(assignment, reason);
                Backoff::INFRASTRUCTURE.delay(failures, jitter())
            }
        };
        select_biased! {
            ended = ended(inputs).fuse() => return Err(ended),
            () = pipeline.runtime.sleep(wait).fuse() => {}
        }
    }
}

/// What the store holds of the lane.
pub(super) fn stored_positions<E, F, H>(
    pipeline: &Pipeline<E, F, H>,
    assignment: &Assignment,
) -> impl Future<Output = Result<Vec<StoredPosition>, StoreError>> + Send + 'static + use<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    let store = Arc::clone(&pipeline.batch.store);
    let (group, lane) = (pipeline.settings.topology.group.clone(), assignment.lane.clone());
    ask(&*pipeline.runtime, "position", async move { store.positions(&group, &lane).await })
}

/// Completes when the lane is to end. Cancel safe.
async fn ended(inputs: &mut mpsc::UnboundedReceiver<Input>) -> Exit {
    match inputs.next().await {
        Some(Input::Drain) => Exit::Released,
        None => Exit::Abandoned,
        Some(Input::Records(_)) => {
            tracing::error!("records were delivered before the lane was started");
            Exit::Restart
        }
    }
}

/// Tells whoever is on call. `position` is where the lane starts.
pub(super) fn tell<E, F, H>(
    pipeline: &Pipeline<E, F, H>,
    assignment: &Assignment,
    alarm: Alarm,
    position: Committable,
) {
    let lane = &assignment.lane;
    pipeline.metrics.start_alarm(alarm);
    match alarm {
        Alarm::AnotherLog => tracing::error!(%lane, position = position.0,
            "the stored position belongs to another topic or cluster of this name, lane starts at its first record"),
        Alarm::PastTheEnd { position: stored } => tracing::error!(%lane, stored = stored.0, position = position.0,
            "the position lies behind the end of the log, lane starts at its first record"),
        Alarm::Expired { position: wanted } => tracing::error!(%lane, wanted = wanted.0, position = position.0,
            "records expired before they were consumed, lane starts at the first one left"),
        Alarm::StoreIsBehind { committed, stored } => tracing::warn!(%lane, committed = committed.0,
            stored = stored.0, "the database is behind Kafka's offset, lane started at the database's position; to \
            skip records on purpose use `positions set`"),
    }
}
