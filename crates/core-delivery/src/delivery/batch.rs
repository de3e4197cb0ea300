//! The one algorithm: claim, admit, perform concurrently, release what failed, record, commit. Everything that
//! keeps an event from taking effect twice happens here and nowhere else (R-KFK-IDEM-3, D-1).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_lock::Semaphore;

use crate::claim::{Claim, Claimed, ConsumerGroup, DedupKey};
use crate::event::{Event, EventId};
use crate::ports::{
    Admission, Effect, ErrorClass, EventHandler, Runtime, StoreError, UnitOfWork, UnitOfWorkFactory, error_chain,
};

use super::backoff::{Backoff, jitter};
use super::lane::Delivery;
use super::perform::{Performed, perform};
use super::verdict::Failure;

/// How often a unit that collides with another one is run again before the lane pauses.
const CONFLICT_TRIES: u32 = 5;

/// Runs units of work for one consumer.
pub struct Batch<F, H> {
    /// Opens the units.
    pub store: Arc<F>,
    /// Handles the events.
    pub handler: Arc<H>,
    /// The group that claims.
    pub group: ConsumerGroup,
    /// Bounds the calls in flight over all lanes.
    pub calls: Arc<Semaphore>,
    /// For the pauses between colliding units.
    pub runtime: Arc<dyn Runtime>,
}

/// Receipts of performed events whose unit did not commit: they are recorded by a later unit instead of performing
/// the event again.
pub type Receipts<R> = HashMap<EventId, R>;

/// What became of the deliveries of a batch, in delivered order.
#[derive(Debug)]
pub struct BatchReport<E> {
    /// One outcome for each delivery.
    pub outcomes: Vec<(Delivery<E>, Outcome)>,
    /// Why intake must pause, if it must; the affected deliveries are [`Outcome::Postponed`].
    pub interruption: Option<Interruption>,
}

/// What became of one delivery in its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Applied,
    /// It was handled before, or by another delivery in this batch.
    Duplicate,
    /// To be sent to a tier or to the dead letters.
    Failed(Failure),
    /// Nothing happened to it: it stays where it is.
    Postponed,
}

/// Why a batch could not go on.
#[derive(Debug)]
pub enum Interruption {
    /// The store.
    Store(StoreError),
    /// The handler asked to stop intake.
    Handler(String),
}

impl Interruption {
    /// The reason in one line.
    pub fn reason(&self) -> String {
        match self {
            Self::Store(error) => error_chain(error),
            Self::Handler(reason) => reason.clone(),
        }
    }
}

impl<F, H> Batch<F, H>
where
    F: UnitOfWorkFactory,
{
    /// Runs the deliveries to their outcomes. Not cancel safe: run it in a task of its own.
    ///
    /// A store that refuses the data of a batch gets its events one by one, so that a bad event harms only itself.
    pub async fn run<E>(&self, deliveries: Vec<Delivery<E>>, receipts: &mut Receipts<H::Receipt>) -> BatchReport<E>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut seen = HashSet::with_capacity(deliveries.len());
        let leaders: Vec<Arc<E>> =
            deliveries.iter().filter(|d| seen.insert(d.event.id())).map(|d| Arc::clone(&d.event)).collect();
        drop(seen);
        let (outcomes, interruption) = match self.attempt(&leaders, receipts).await {
            Err(StoreError::Rejected { .. }) if leaders.len() > 1 => self.isolate(&leaders, receipts).await,
            Err(StoreError::Rejected { context, source }) => {
                let error = StoreError::Rejected { context, source };
                (vec![Outcome::Failed(rejected(&error, leaders[0].id(), receipts))], None)
            }
            Err(error) => (vec![Outcome::Postponed; leaders.len()], Some(Interruption::Store(error))),
            Ok(done) => done,
        };
        let ids = leaders.iter().map(|event| event.id());
        report(deliveries, ids.zip(outcomes).collect(), interruption)
    }

    /// Each event in a unit of its own, in delivered order, up to the first interruption.
    async fn isolate<E>(&self, events: &[Arc<E>], receipts: &mut Receipts<H::Receipt>) -> Attempted
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut outcomes = Vec::with_capacity(events.len());
        let mut interruption = None;
        for event in events {
            let (outcome, stop) = match self.attempt(std::slice::from_ref(event), receipts).await {
                Ok((mut one, stop)) => (one.pop().unwrap_or(Outcome::Postponed), stop),
                Err(error @ StoreError::Rejected { .. }) => {
                    (Outcome::Failed(rejected(&error, event.id(), receipts)), None)
                }
                Err(error) => (Outcome::Postponed, Some(Interruption::Store(error))),
            };
            outcomes.push(outcome);
            if stop.is_some() {
                interruption = stop;
                break;
            }
        }
        outcomes.resize(events.len(), Outcome::Postponed);
        (outcomes, interruption)
    }

    /// One unit, run again while it collides with others.
    async fn attempt<E>(&self, events: &[Arc<E>], receipts: &mut Receipts<H::Receipt>) -> Result<Attempted, StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut failures = 0;
        loop {
            match self.unit(events, receipts).await {
                Err(StoreError::Conflict { .. }) if failures < CONFLICT_TRIES => {
                    failures += 1;
                    self.runtime.sleep(Backoff::CONFLICT.delay(failures, jitter())).await;
                }
                result => return result,
            }
        }
    }

    /// One unit of work over distinct events in delivered order.
    async fn unit<E>(&self, events: &[Arc<E>], receipts: &mut Receipts<H::Receipt>) -> Result<Attempted, StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut unit = self.store.begin().await?;
        let fresh = self.claim(&mut unit, events).await?;
        let mut outcomes = vec![Outcome::Duplicate; events.len()];

        let claimed: Vec<Claimed<E>> = fresh.iter().map(|&index| Claimed::new(Arc::clone(&events[index]))).collect();
        let admissions = if claimed.is_empty() { vec![] } else { self.handler.admit(&mut unit, &claimed).await? };
        assert_eq!(admissions.len(), claimed.len(), "admit answers for each event it was asked for");

        let (mut to_perform, mut done, mut released) = (vec![], vec![], vec![]);
        for ((index, claimed), admission) in fresh.into_iter().zip(claimed).zip(admissions) {
            match admission {
                Admission::Duplicate => {}
                Admission::Refused(refusal) => {
                    outcomes[index] = Outcome::Failed(Failure::dead(refusal.class, refusal.reason));
                    released.push(self.key(claimed.event().id()));
                }
                Admission::Proceed => match receipts.remove(&claimed.event().id()) {
                    Some(receipt) => {
                        outcomes[index] = Outcome::Applied;
                        done.push((claimed, receipt));
                    }
                    None => to_perform.push((index, claimed)),
                },
            }
        }

        let (mut failed, mut interruption) = (vec![], None);
        for (index, claimed, performed) in perform(&self.handler, &self.calls, to_perform).await {
            outcomes[index] = match performed {
                Performed::Done(receipt) => {
                    done.push((claimed, receipt));
                    Outcome::Applied
                }
                Performed::Failed(failure) => {
                    failed.push(claimed);
                    Outcome::Failed(failure)
                }
                Performed::Halted(reason) => {
                    failed.push(claimed);
                    interruption = interruption.or(reason.map(Interruption::Handler));
                    Outcome::Postponed
                }
            };
        }
        released.extend(failed.iter().map(|claimed| self.key(claimed.event().id())));

        let written = self.write(&mut unit, &failed, released, &done).await;
        let committed = match written {
            Ok(()) => unit.commit().await,
            Err(error) => {
                drop(unit);
                Err(error)
            }
        };
        if let Err(error) = committed {
            receipts.extend(done.into_iter().map(|(claimed, receipt)| (claimed.event().id(), receipt)));
            return Err(error);
        }
        if !receipts.is_empty() {
            // A commit whose answer was lost leaves receipts of events that turn out to be duplicates.
            events.iter().for_each(|event| drop(receipts.remove(&event.id())));
        }
        Ok((outcomes, interruption))
    }

    /// Claims the events and tells which are fresh, by index, in delivered order. Only the keys of the statement
    /// are sorted, so that two units cannot deadlock.
    async fn claim<E: Event>(&self, unit: &mut F::Unit, events: &[Arc<E>]) -> Result<Vec<usize>, StoreError> {
        let mut by_id: Vec<usize> = (0..events.len()).collect();
        by_id.sort_unstable_by_key(|&index| events[index].id());
        let keys: Vec<DedupKey> = by_id.iter().map(|&index| self.key(events[index].id())).collect();
        let claims = unit.claim(&keys).await?;
        assert_eq!(claims.len(), keys.len(), "the store answers for each key it was asked for");
        let answers = by_id.into_iter().zip(claims);
        let mut fresh: Vec<usize> = answers.filter(|(_, claim)| *claim == Claim::Fresh).map(|(i, _)| i).collect();
        fresh.sort_unstable();
        Ok(fresh)
    }

    /// What is written after the calls: first what is taken back, then what was done.
    async fn write<E>(
        &self,
        unit: &mut F::Unit,
        failed: &[Claimed<E>],
        mut released: Vec<DedupKey>,
        done: &[(Claimed<E>, H::Receipt)],
    ) -> Result<(), StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        if !failed.is_empty() {
            self.handler.retract(unit, failed).await?;
        }
        if !released.is_empty() {
            released.sort_unstable();
            unit.release(&released).await?;
        }
        if !done.is_empty() {
            self.handler.record(unit, done).await?;
        }
        Ok(())
    }

    fn key(&self, event: EventId) -> DedupKey {
        DedupKey::new(event, self.group.clone())
    }
}

type Attempted = (Vec<Outcome>, Option<Interruption>);

/// The failure of one event whose data the store refuses. If it was performed, the effect is there and only the
/// ledger is missing: nobody may call that "not done".
fn rejected<R>(error: &StoreError, event: EventId, receipts: &mut Receipts<R>) -> Failure {
    match receipts.remove(&event) {
        None => Failure::dead(ErrorClass::REJECTED, error_chain(error)),
        Some(_) => Failure {
            effect: Effect::Unknown,
            ..Failure::dead(
                ErrorClass::IN_DOUBT,
                format!("performed, but its record was refused: {}", error_chain(error)),
            )
        },
    }
}

/// Gives each delivery its outcome. A second delivery of an event in the same batch shares the fate of the first:
/// where the first was applied it is a duplicate, and otherwise it goes the same way, because the claim absorbs
/// whichever copy comes back second.
fn report<E: Event>(
    deliveries: Vec<Delivery<E>>,
    outcomes: HashMap<EventId, Outcome>,
    interruption: Option<Interruption>,
) -> BatchReport<E> {
    let mut told = HashSet::with_capacity(deliveries.len());
    let outcomes = deliveries
        .into_iter()
        .map(|delivery| {
            let id = delivery.event.id();
            let outcome = match (&outcomes[&id], told.insert(id)) {
                (Outcome::Applied, false) => Outcome::Duplicate,
                (outcome, _) => outcome.clone(),
            };
            (delivery, outcome)
        })
        .collect();
    BatchReport { outcomes, interruption }
}
