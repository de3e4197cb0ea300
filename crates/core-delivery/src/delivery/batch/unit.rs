//! One unit of work: claim, admit, perform, take back what failed, record, move the position, commit. It is run again
//! while it collides with others, and decides nothing about a batch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::claim::{Claim, Claimed, DedupKey, History};
use crate::crash::{CrashPoint, reached};
use crate::delivery::backoff::{Backoff, jitter};
use crate::delivery::lane::Delivery;
use crate::delivery::perform::{Performance, Performed, perform};
use crate::delivery::verdict::{Failure, certainly_none};
use crate::event::{Event, EventId};
use crate::ports::{
    Admission, Effect, ErrorClass, EventHandler, Knowledge, PositionStep, StoreError, UnitOfWork, UnitOfWorkFactory,
};

use super::{Attempted, Batch, Interruption, Outcome, Outcomes, Unrecorded, unperformed};

/// How often a unit that collides with another one is run again before the lane pauses.
const CONFLICT_TRIES: u32 = 5;

/// Deliveries of distinct events, in delivered order, on their way through a unit.
pub(super) struct Attempt<'a, E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    batch: &'a Batch<F, H>,
    deliveries: &'a [&'a Delivery<E>],
    /// Events whose claims must be there already.
    relies_on: &'a [EventId],
    unrecorded: &'a mut Unrecorded<H::Receipt>,
    outcomes: Outcomes,
}

/// What a unit has to write when its calls have ended.
struct Changes<E, R> {
    /// Taken back are the reservations of events that certainly had no effect; the others keep theirs, so that
    /// nothing else takes their place while it is not known what happened.
    retracted: Vec<Claimed<E>>,
    released: Vec<DedupKey>,
    done: Vec<(Claimed<E>, R)>,
}

impl<'a, E, F, H> Attempt<'a, E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    pub(super) fn new(
        batch: &'a Batch<F, H>,
        deliveries: &'a [&'a Delivery<E>],
        unrecorded: &'a mut Unrecorded<H::Receipt>,
    ) -> Self {
        Self { batch, deliveries, relies_on: &[], unrecorded, outcomes: Outcomes::new() }
    }

    /// The unit comes to nothing if one of these events is not claimed yet.
    pub(super) fn relying_on(self, relies_on: &'a [EventId]) -> Self {
        Self { relies_on, ..self }
    }

    /// One unit, run again while it collides with others. `step` is the move of the position that its outcomes allow.
    pub(super) async fn run(
        mut self,
        step: &(impl Fn(&Outcomes) -> Option<PositionStep> + Sync),
    ) -> Result<Attempted, StoreError> {
        let mut failures = 0;
        loop {
            match self.unit(step).await {
                Err(StoreError::Conflict { .. }) if failures < CONFLICT_TRIES => {
                    failures += 1;
                    self.batch.runtime.sleep(Backoff::CONFLICT.delay(failures, jitter())).await;
                }
                result => return result,
            }
        }
    }

    async fn unit(
        &mut self,
        step: &(impl Fn(&Outcomes) -> Option<PositionStep> + Sync),
    ) -> Result<Attempted, StoreError> {
        let mut unit = self.batch.store.begin().await?;
        // An earlier run of this unit may have left calls behind.
        self.outcomes = Outcomes::with_capacity(self.deliveries.len());
        let mut free = Vec::with_capacity(self.deliveries.len());
        for &delivery in self.deliveries {
            let held = self.unrecorded.holds(delivery.event.id(), delivery.event.key());
            if held.is_none() {
                free.push(delivery);
            }
            self.outcomes.insert(delivery.event.id(), held.unwrap_or(Outcome::Duplicate));
        }
        let fresh = self.claim(&mut unit, &free).await?;
        let admissions = if fresh.is_empty() { vec![] } else { self.batch.handler.admit(&mut unit, &fresh).await? };
        assert_eq!(admissions.len(), fresh.len(), "admit answers for each event it was asked for");
        if !fresh.is_empty() {
            reached(CrashPoint::AfterAdmit);
        }

        let mut changes = Changes { retracted: vec![], released: vec![], done: vec![] };
        let to_perform = self.admitted(fresh, admissions, &mut changes);
        let Batch { handler, calls, runtime, straggler_deadline, .. } = self.batch;
        let performance = perform(handler, calls, runtime, *straggler_deadline, to_perform).await;
        if !(performance.ended.is_empty() && performance.open.is_empty()) {
            reached(CrashPoint::AfterPerform);
        }
        let interruption = self.performed(performance, &mut changes);

        let step = step(&self.outcomes);
        let stored = step.as_ref().map(|step| step.to);
        let written = self.write(&mut unit, &mut changes, step).await;
        let committed = match written {
            Ok(()) => {
                reached(CrashPoint::BeforeCommit);
                unit.commit().await
            }
            Err(error) => {
                drop(unit);
                Err(error)
            }
        };
        let outcomes = std::mem::take(&mut self.outcomes);
        match committed {
            Ok(()) => {
                reached(CrashPoint::AfterCommit);
                self.committed(&outcomes);
                Ok(Attempted { outcomes, interruption, stored })
            }
            Err(error) => {
                self.undone(outcomes, changes.done);
                Err(error)
            }
        }
    }

    /// Notes what the handler's admissions decide, and returns what is to be performed.
    fn admitted(
        &mut self,
        fresh: Vec<Claimed<E>>,
        admissions: Vec<Admission>,
        changes: &mut Changes<E, H::Receipt>,
    ) -> Vec<Claimed<E>> {
        let mut to_perform = vec![];
        for (claimed, admission) in fresh.into_iter().zip(admissions) {
            let id = claimed.event().id();
            match admission {
                Admission::Duplicate => {}
                Admission::Refused(refusal) => {
                    let failure = unperformed(Failure::refused(refusal), id, self.unrecorded);
                    self.outcomes.insert(id, Outcome::Refused(failure));
                    changes.released.push(self.batch.key(id));
                }
                Admission::Proceed | Admission::ProceedInDoubt => {
                    if let Some(receipt) = self.unrecorded.receipts.remove(&id) {
                        reached(CrashPoint::StragglerTakenUp);
                        self.outcomes.insert(id, Outcome::Applied);
                        changes.done.push((claimed, receipt));
                    } else if let Some(failure) = self.unrecorded.failures.remove(&id) {
                        let effect = failure.effect;
                        self.not_done(claimed, Outcome::Failed(failure), effect, changes);
                    } else if admission == Admission::ProceedInDoubt {
                        // Kept until its copy carries it: this try may end without an effect of its own.
                        self.batch.doubts.note(id, Effect::Unknown);
                        to_perform.push(claimed.in_doubt());
                    } else {
                        to_perform.push(claimed);
                    }
                }
            }
        }
        to_perform
    }

    /// Notes what became of the calls, and why intake must pause, if it must.
    fn performed(
        &mut self,
        performance: Performance<E, H::Receipt>,
        changes: &mut Changes<E, H::Receipt>,
    ) -> Option<Interruption> {
        let mut interruption = None;
        for (claimed, performed) in performance.ended {
            let id = claimed.event().id();
            let (outcome, effect) = match performed {
                Performed::Done(receipt) => {
                    self.outcomes.insert(id, Outcome::Applied);
                    changes.done.push((claimed, receipt));
                    continue;
                }
                Performed::Failed(failure) => {
                    let effect = failure.effect;
                    (Outcome::Failed(failure), effect)
                }
                Performed::Halted(halt) => {
                    let effect = halt.as_ref().map_or(Effect::None, |halt| halt.effect);
                    self.batch.doubts.note(id, effect);
                    interruption = interruption.or(halt.map(|halt| Interruption::Handler(halt.reason)));
                    (Outcome::Postponed, effect)
                }
            };
            self.not_done(claimed, outcome, effect, changes);
        }
        let straggling: HashSet<EventId> = performance.stragglers.iter().map(|straggler| straggler.event).collect();
        for claimed in performance.open {
            let id = claimed.event().id();
            changes.released.push(self.batch.key(id));
            if straggling.contains(&id) {
                self.outcomes.insert(id, Outcome::Straggling);
            } else {
                self.outcomes.insert(id, Outcome::Postponed);
                if !claimed.history().in_doubt {
                    changes.retracted.push(claimed);
                }
            }
        }
        self.unrecorded.stragglers.extend(performance.stragglers);
        interruption
    }

    /// Notes the outcome of an event that was not handled: its claim is taken back, and what was reserved for it unless it
    /// may have had an effect.
    fn not_done(
        &mut self,
        claimed: Claimed<E>,
        outcome: Outcome,
        effect: Effect,
        changes: &mut Changes<E, H::Receipt>,
    ) {
        let id = claimed.event().id();
        self.outcomes.insert(id, outcome);
        changes.released.push(self.batch.key(id));
        if certainly_none(effect, claimed.history().in_doubt) {
            changes.retracted.push(claimed);
        }
    }

    /// Everything is stored: what a call of an event that turned out to be a duplicate brought is not needed any more, and
    /// a doubt about one that ended is settled.
    fn committed(&mut self, outcomes: &Outcomes) {
        let ended = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Applied | Outcome::Duplicate));
        for (id, _) in ended {
            self.unrecorded.receipts.remove(id);
            self.unrecorded.failures.remove(id);
            self.batch.doubts.take(*id);
        }
    }

    /// Nothing is stored: what was performed is kept for a later unit. Failures are forgotten and tried again, but not
    /// that one of them may have had an effect.
    fn undone(&mut self, outcomes: Outcomes, done: Vec<(Claimed<E>, H::Receipt)>) {
        let receipts = done.into_iter().map(|(claimed, receipt)| (claimed.event().id(), receipt));
        self.unrecorded.receipts.extend(receipts);
        for (id, outcome) in outcomes {
            if let Outcome::Failed(failure) = outcome {
                self.batch.doubts.note(id, failure.effect);
            }
        }
    }

    /// Claims the events, notes the outcome of those that have expired, and returns the proofs of the fresh ones in
    /// delivered order. Only the keys of the one statement are sorted, so that two units cannot deadlock.
    async fn claim(&mut self, unit: &mut F::Unit, deliveries: &[&Delivery<E>]) -> Result<Vec<Claimed<E>>, StoreError> {
        let events = deliveries.iter().map(|delivery| delivery.event.id()).chain(self.relies_on.iter().copied());
        let mut keys: Vec<DedupKey> = events.map(|event| self.batch.key(event)).collect();
        if keys.is_empty() {
            return Ok(vec![]);
        }
        keys.sort_unstable();
        keys.dedup();
        let claims = unit.claim(&keys).await?;
        reached(CrashPoint::AfterClaim);
        assert_eq!(claims.len(), keys.len(), "the store answers for each key it was asked for");
        let claims: HashMap<EventId, Claim> = keys.iter().map(DedupKey::event_id).zip(claims).collect();
        if let Some(event) = self.relies_on.iter().find(|event| claims[event] == Claim::Fresh) {
            let context = format!("the claim of event {event}, which an earlier unit settled, is gone");
            return Err(StoreError::Moved { context });
        }

        let (mut fresh, mut expired) = (vec![], vec![]);
        for delivery in deliveries {
            match claims[&delivery.event.id()] {
                Claim::Fresh => fresh.push(delivery),
                Claim::AlreadyProcessed => {}
                Claim::Expired => expired.push(Arc::clone(&delivery.event)),
            }
        }
        if !expired.is_empty() {
            self.expired(unit, &expired).await?;
        }
        let history = |delivery: &Delivery<E>| {
            let in_doubt = delivery.history.in_doubt || self.batch.doubts.contains(delivery.event.id());
            History { in_doubt, ..delivery.history }
        };
        Ok(fresh.into_iter().map(|delivery| Claimed::new(Arc::clone(&delivery.event), history(delivery))).collect())
    }

    /// An event whose claim has expired is a duplicate if the application's tables know it, and else nobody can tell:
    /// it is never guessed at (D-9).
    async fn expired(&mut self, unit: &mut F::Unit, events: &[Arc<E>]) -> Result<(), StoreError> {
        let known = self.batch.handler.known(unit, events).await?;
        assert_eq!(known.len(), events.len(), "known answers for each event it was asked for");
        let unknown = events.iter().zip(known).filter(|(_, known)| *known == Knowledge::Unknown);
        for (event, _) in unknown {
            let text = "the event is older than the claims that are kept, and nothing tells whether it was handled";
            let failure = Failure::dead(ErrorClass::EXPIRED, text);
            let refused = Outcome::Refused(unperformed(failure, event.id(), self.unrecorded));
            self.outcomes.insert(event.id(), refused);
        }
        Ok(())
    }

    /// What is written after the calls: first what is taken back, then what was done, last how far the lane has come.
    async fn write(
        &mut self,
        unit: &mut F::Unit,
        changes: &mut Changes<E, H::Receipt>,
        step: Option<PositionStep>,
    ) -> Result<(), StoreError> {
        let Batch { handler, .. } = self.batch;
        if !changes.retracted.is_empty() {
            handler.retract(unit, &changes.retracted).await?;
        }
        if !changes.released.is_empty() {
            changes.released.sort_unstable();
            unit.release(&changes.released).await?;
        }
        if !changes.done.is_empty() {
            handler.record(unit, &changes.done).await?;
            reached(CrashPoint::AfterRecord);
        }
        if let Some(step) = step {
            unit.advance(&step).await?;
        }
        Ok(())
    }
}
