//! The one algorithm, over a batch: one unit for all of it, and one for each event where the store refuses the data.
//! Everything that keeps an event from taking effect twice happens here and in `unit` (R-KFK-IDEM-3, D-1).

mod unit;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{ConsumerGroup, DedupKey};
use crate::event::{Event, EventId};
use crate::ports::{
    Effect, ErrorClass, EventHandler, PositionStep, Runtime, StoreError, UnitOfWorkFactory, error_chain,
};
use crate::record::{Committable, LaneId, LogIdentity};

use super::calls::Calls;
use super::doubts::Doubts;
use super::lane::Delivery;
use super::perform::Straggler;
use super::verdict::Failure;
use super::watermark::Outlook;
use unit::Attempt;

/// Runs units of work for one consumer.
pub struct Batch<F, H> {
    /// Opens the units.
    pub store: Arc<F>,
    /// Handles the events.
    pub handler: Arc<H>,
    /// The group that claims.
    pub group: ConsumerGroup,
    /// Bounds the calls in flight over all lanes.
    pub calls: Calls,
    /// How long the calls of a unit may hold it; what takes longer outlives it.
    pub straggler_deadline: Duration,
    /// What tries with an unknown outcome left behind.
    pub doubts: Doubts,
    /// For the pauses between colliding units.
    pub runtime: Arc<dyn Runtime>,
}

/// What calls brought, or will bring, that no unit has recorded yet: a later unit records it instead of performing the
/// event again.
#[derive(Debug)]
pub struct Unrecorded<R> {
    /// Receipts of events whose unit did not commit, or whose call outlived it.
    pub receipts: HashMap<EventId, R>,
    /// Failures without an effect of calls that outlived their unit, which kept what the handler had reserved for them:
    /// a later unit takes it back.
    pub failures: HashMap<EventId, Failure>,
    /// Calls that outlived their unit and still run.
    pub stragglers: Vec<Straggler<R>>,
}

impl<R> Default for Unrecorded<R> {
    fn default() -> Self {
        Self { receipts: HashMap::new(), failures: HashMap::new(), stragglers: vec![] }
    }
}

impl<R> Unrecorded<R> {
    /// Whether the event's call has ended, so that it is only to be recorded.
    pub(super) fn knows(&self, event: EventId) -> bool {
        self.receipts.contains_key(&event) || self.failures.contains_key(&event)
    }

    /// The outcome of an event that must not be performed now, because its call, or one of its key, still runs.
    fn holds(&self, event: EventId, key: &str) -> Option<Outcome> {
        if self.knows(event) {
            return None;
        }
        if self.stragglers.iter().any(|straggler| straggler.event == event) {
            return Some(Outcome::Straggling);
        }
        self.stragglers.iter().any(|straggler| straggler.key == key).then_some(Outcome::Postponed)
    }
}

/// What became of the deliveries of a batch, in delivered order.
#[derive(Debug)]
pub struct BatchReport<E> {
    /// One outcome for each delivery.
    pub outcomes: Vec<(Delivery<E>, Outcome)>,
    /// Why intake must pause, if it must; the affected deliveries are [`Outcome::Postponed`].
    pub interruption: Option<Interruption>,
    /// The position that was stored with the outcomes; `None` if none was.
    pub stored: Option<Committable>,
}

/// The position to be stored in the unit that brings it about (D-11).
#[derive(Debug, Clone)]
pub struct PositionPlan {
    /// The lane.
    pub lane: LaneId,
    /// The log that the lane is.
    pub identity: LogIdentity,
    /// What the store holds.
    pub from: Option<Committable>,
    /// Whether the position may go below what the store holds, which is said of a log that it does not describe.
    pub may_lower: bool,
    /// Where the watermark stands, and what lies before it.
    pub outlook: Outlook,
}

/// What became of one delivery in its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Applied,
    /// It was handled before, or by another delivery in this batch.
    Duplicate,
    /// Its call failed: to be sent to a tier or to the dead letters.
    Failed(Failure),
    /// The store or the application's tables refuse it, without a call: to be sent to the dead letters.
    Refused(Failure),
    /// Nothing happened to it: it stays where it is.
    Postponed,
    /// Its call is still running; its claim was released.
    Straggling,
}

/// Why a batch could not go on.
#[derive(Debug)]
pub enum Interruption {
    /// The store.
    Store(StoreError),
    /// The handler asked to stop intake.
    Handler(String),
    /// Failing has become the rule.
    Storm,
}

impl Interruption {
    /// Whether the lane cannot know any more what the store holds as its position.
    pub fn position_is_unknown(&self) -> bool {
        matches!(self, Self::Store(StoreError::Moved { .. } | StoreError::CommitUnknown { .. }))
    }

    /// The reason in one line.
    pub fn reason(&self) -> String {
        match self {
            Self::Store(error) => error_chain(error),
            Self::Handler(reason) => reason.clone(),
            Self::Storm => {
                "too many calls fail, events stay where they are until one succeeds: look at the handler's dependency"
                    .to_owned()
            }
        }
    }
}

impl<F, H> Batch<F, H>
where
    F: UnitOfWorkFactory,
{
    /// Runs the deliveries, which are in delivered order, to their outcomes, and stores the position that they reach.
    /// Without deliveries it only stores the position. Not cancel safe: run it in a task of its own.
    ///
    /// A store that refuses the data of a batch gets its events one by one, so that a bad event harms only itself; the
    /// position is then left to the next unit.
    pub async fn run<E>(
        &self,
        deliveries: Vec<Delivery<E>>,
        unrecorded: &mut Unrecorded<H::Receipt>,
        plan: Option<&PositionPlan>,
    ) -> BatchReport<E>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut seen = HashSet::with_capacity(deliveries.len());
        let leaders: Vec<&Delivery<E>> = deliveries.iter().filter(|d| seen.insert(d.event.id())).collect();
        drop(seen);
        let relies_on = plan.map_or_else(Vec::new, |plan| relied_on(plan, &deliveries));
        let step = |outcomes: &Outcomes| plan.and_then(|plan| self.step(plan, &deliveries, outcomes));
        let attempted = match Attempt::new(self, &leaders, unrecorded).relying_on(&relies_on).run(&step).await {
            Err(StoreError::Rejected { .. }) if leaders.len() > 1 => self.isolate(&leaders, unrecorded).await,
            Err(error @ StoreError::Rejected { .. }) if leaders.len() == 1 => {
                let id = leaders[0].event.id();
                let failure = Outcome::Refused(rejected(&error, id, unrecorded));
                Attempted { outcomes: HashMap::from([(id, failure)]), interruption: None, stored: None }
            }
            Err(error) => Attempted {
                outcomes: leaders.iter().map(|d| (d.event.id(), still_open(d, unrecorded))).collect(),
                interruption: Some(Interruption::Store(error)),
                stored: None,
            },
            Ok(done) => done,
        };
        report(deliveries, attempted)
    }

    /// The step of the lane's position that these outcomes allow, if it is one.
    fn step<E: Event>(
        &self,
        plan: &PositionPlan,
        deliveries: &[Delivery<E>],
        outcomes: &Outcomes,
    ) -> Option<PositionStep> {
        let settled = |ticket| {
            let delivery = deliveries.binary_search_by_key(&ticket, |delivery| delivery.ticket);
            let id = delivery.map(|index| deliveries[index].event.id());
            id.is_ok_and(|id| matches!(outcomes.get(&id), Some(Outcome::Applied | Outcome::Duplicate)))
        };
        let to = plan.outlook.position_with(settled)?;
        (plan.may_lower || Some(to) > plan.from).then(|| PositionStep {
            group: self.group.clone(),
            lane: plan.lane.clone(),
            identity: plan.identity.clone(),
            from: plan.from,
            to,
        })
    }

    /// Each event in a unit of its own, in delivered order, up to the first interruption.
    async fn isolate<E>(&self, deliveries: &[&Delivery<E>], unrecorded: &mut Unrecorded<H::Receipt>) -> Attempted
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut outcomes = Outcomes::with_capacity(deliveries.len());
        let mut interruption = None;
        for delivery in deliveries {
            let id = delivery.event.id();
            if interruption.is_some() {
                outcomes.insert(id, still_open(delivery, unrecorded));
                continue;
            }
            let attempt = Attempt::new(self, std::slice::from_ref(delivery), unrecorded);
            match attempt.run(&|_| None).await {
                Ok(one) => {
                    outcomes.extend(one.outcomes);
                    interruption = one.interruption;
                }
                Err(error @ StoreError::Rejected { .. }) => {
                    outcomes.insert(id, Outcome::Refused(rejected(&error, id, unrecorded)));
                }
                Err(error) => {
                    outcomes.insert(id, still_open(delivery, unrecorded));
                    interruption = Some(Interruption::Store(error));
                }
            }
        }
        Attempted { outcomes, interruption, stored: None }
    }

    fn key(&self, event: EventId) -> DedupKey {
        DedupKey::new(event, self.group.clone())
    }
}

type Outcomes = HashMap<EventId, Outcome>;

/// The events that the position may pass with this batch and that earlier units settled behind a position which did not
/// move. The compare-and-set says nothing of them: a store that lost those units and nothing else holds the position of
/// before, so their claims are asked for again (D-11).
fn relied_on<E: Event>(plan: &PositionPlan, deliveries: &[Delivery<E>]) -> Vec<EventId> {
    let is_here = |ticket| deliveries.binary_search_by_key(&ticket, |delivery| delivery.ticket).is_ok();
    let from = if plan.may_lower { None } else { plan.from };
    match plan.outlook.position_with(is_here) {
        Some(to) => plan.outlook.claimed_between(from, to).collect(),
        None => vec![],
    }
}

/// What a unit brought about.
struct Attempted {
    outcomes: Outcomes,
    interruption: Option<Interruption>,
    stored: Option<Committable>,
}

/// What a delivery is whose unit came to nothing.
fn still_open<E: Event, R>(delivery: &Delivery<E>, unrecorded: &Unrecorded<R>) -> Outcome {
    unrecorded.holds(delivery.event.id(), delivery.event.key()).unwrap_or(Outcome::Postponed)
}

/// The failure of one event whose data the store refuses.
fn rejected<R>(error: &StoreError, event: EventId, unrecorded: &mut Unrecorded<R>) -> Failure {
    unperformed(Failure::dead(ErrorClass::REJECTED, error_chain(error)), event, unrecorded)
}

/// The failure of an event that is not recorded. If it was performed all the same, the effect is there and only the
/// ledger is missing: nobody may call that "not done".
fn unperformed<R>(failure: Failure, event: EventId, unrecorded: &mut Unrecorded<R>) -> Failure {
    unrecorded.failures.remove(&event);
    match unrecorded.receipts.remove(&event) {
        None => failure,
        Some(_) => Failure {
            effect: Effect::Unknown,
            ..Failure::dead(ErrorClass::IN_DOUBT, format!("performed, but not recorded: {}", failure.text))
        },
    }
}

/// Gives each delivery its outcome. A second delivery of an event in the same batch shares the fate of the first:
/// where the first was applied it is a duplicate, and otherwise it goes the same way, because the claim absorbs
/// whichever copy comes back second.
fn report<E: Event>(deliveries: Vec<Delivery<E>>, attempted: Attempted) -> BatchReport<E> {
    let mut told = HashSet::with_capacity(deliveries.len());
    let Attempted { outcomes, interruption, stored } = attempted;
    let outcomes = deliveries
        .into_iter()
        .map(|delivery| {
            let id = delivery.event.id();
            let outcome = match (&outcomes[&id], told.insert(id)) {
                (Outcome::Applied, false) => Outcome::Duplicate,
                // It waits for the first one's call.
                (Outcome::Straggling, false) => Outcome::Postponed,
                (outcome, _) => outcome.clone(),
            };
            (delivery, outcome)
        })
        .collect();
    BatchReport { outcomes, interruption, stored }
}
