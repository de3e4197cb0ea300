//! One unit of work: claim, admit, perform, take back what failed, record, move the position, commit. It is run again
//! while it collides with others, and decides nothing about a batch.

use super::*;

impl<F, H> Batch<F, H>
where
    F: UnitOfWorkFactory,
{
    /// One unit, run again while it collides with others.
    pub(super) async fn attempt<E>(
        &self,
        deliveries: &[&Delivery<E>],
        unrecorded: &mut Unrecorded<H::Receipt>,
        step: &(impl Fn(&Outcomes) -> Option<PositionStep> + Sync),
    ) -> Result<Attempted, StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut failures = 0;
        loop {
            match self.unit(deliveries, unrecorded, step).await {
                Err(StoreError::Conflict { .. }) if failures < CONFLICT_TRIES => {
                    failures += 1;
                    self.runtime.sleep(Backoff::CONFLICT.delay(failures, jitter())).await;
                }
                result => return result,
            }
        }
    }

    /// One unit of work over deliveries of distinct events, in delivered order.
    async fn unit<E>(
        &self,
        deliveries: &[&Delivery<E>],
        unrecorded: &mut Unrecorded<H::Receipt>,
        step: &(impl Fn(&Outcomes) -> Option<PositionStep> + Sync),
    ) -> Result<Attempted, StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let mut unit = self.store.begin().await?;
        // An earlier run of this unit may have left calls behind.
        let (mut outcomes, mut free) =
            (Outcomes::with_capacity(deliveries.len()), Vec::with_capacity(deliveries.len()));
        for &delivery in deliveries {
            let held = unrecorded.holds(delivery.event.id(), delivery.event.key());
            if held.is_none() {
                free.push(delivery);
            }
            outcomes.insert(delivery.event.id(), held.unwrap_or(Outcome::Duplicate));
        }
        let fresh = self.claim(&mut unit, &free, unrecorded, &mut outcomes).await?;
        let admissions = if fresh.is_empty() { vec![] } else { self.handler.admit(&mut unit, &fresh).await? };
        assert_eq!(admissions.len(), fresh.len(), "admit answers for each event it was asked for");

        let (mut to_perform, mut done, mut released) = (vec![], vec![], vec![]);
        for (claimed, admission) in fresh.into_iter().zip(admissions) {
            let id = claimed.event().id();
            match admission {
                Admission::Duplicate => {}
                Admission::Refused(refusal) => {
                    let failure = unperformed(Failure::refused(refusal), id, unrecorded);
                    outcomes.insert(id, Outcome::Refused(failure));
                    released.push(self.key(id));
                }
                Admission::Proceed => match unrecorded.receipts.remove(&id) {
                    Some(receipt) => {
                        outcomes.insert(id, Outcome::Applied);
                        done.push((claimed, receipt));
                    }
                    None => to_perform.push(claimed),
                },
            }
        }

        // Taken back are the reservations of events that certainly had no effect; the others keep theirs, so that
        // nothing else takes their place while it is not known what happened.
        let (mut retracted, mut interruption) = (vec![], None);
        let performance = perform(&self.handler, &self.calls, &self.runtime, self.straggler_deadline, to_perform).await;
        for (claimed, performed) in performance.ended {
            let id = claimed.event().id();
            let (outcome, effect) = match performed {
                Performed::Done(receipt) => {
                    outcomes.insert(id, Outcome::Applied);
                    done.push((claimed, receipt));
                    continue;
                }
                Performed::Failed(failure) => {
                    let effect = failure.effect;
                    (Outcome::Failed(failure), effect)
                }
                Performed::Halted(halt) => {
                    let effect = halt.as_ref().map_or(Effect::None, |halt| halt.effect);
                    self.doubts.note(id, effect);
                    interruption = interruption.or(halt.map(|halt| Interruption::Handler(halt.reason)));
                    (Outcome::Postponed, effect)
                }
            };
            outcomes.insert(id, outcome);
            released.push(self.key(id));
            if effect == Effect::Never || effect == Effect::None && !claimed.history().in_doubt {
                retracted.push(claimed);
            }
        }
        let straggling: HashSet<EventId> = performance.stragglers.iter().map(|straggler| straggler.event).collect();
        for claimed in performance.open {
            let id = claimed.event().id();
            released.push(self.key(id));
            if straggling.contains(&id) {
                outcomes.insert(id, Outcome::Straggling);
            } else {
                outcomes.insert(id, Outcome::Postponed);
                if !claimed.history().in_doubt {
                    retracted.push(claimed);
                }
            }
        }
        unrecorded.stragglers.extend(performance.stragglers);

        let step = step(&outcomes);
        let stored = step.as_ref().map(|step| step.to);
        let written = self.write(&mut unit, &retracted, released, &done, step).await;
        let committed = match written {
            Ok(()) => unit.commit().await,
            Err(error) => {
                drop(unit);
                Err(error)
            }
        };
        if let Err(error) = committed {
            let receipts = done.into_iter().map(|(claimed, receipt)| (claimed.event().id(), receipt));
            unrecorded.receipts.extend(receipts);
            // Its failures are forgotten and tried again, but not that one of them may have had an effect.
            for (id, outcome) in outcomes {
                if let Outcome::Failed(failure) = outcome {
                    self.doubts.note(id, failure.effect);
                }
            }
            return Err(error);
        }
        let ended = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Applied | Outcome::Duplicate));
        for (id, _) in ended {
            // A receipt of an event that turned out to be a duplicate, a doubt that is settled.
            unrecorded.receipts.remove(id);
            self.doubts.take(*id);
        }
        Ok(Attempted { outcomes, interruption, stored })
    }

    /// Claims the events, notes the outcome of those that have expired, and returns the proofs of the fresh ones in
    /// delivered order. Only the keys of the statement are sorted, so that two units cannot deadlock.
    async fn claim<E>(
        &self,
        unit: &mut F::Unit,
        deliveries: &[&Delivery<E>],
        unrecorded: &mut Unrecorded<H::Receipt>,
        outcomes: &mut Outcomes,
    ) -> Result<Vec<Claimed<E>>, StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        if deliveries.is_empty() {
            return Ok(vec![]);
        }
        let mut by_id: Vec<usize> = (0..deliveries.len()).collect();
        by_id.sort_unstable_by_key(|&index| deliveries[index].event.id());
        let keys: Vec<DedupKey> = by_id.iter().map(|&index| self.key(deliveries[index].event.id())).collect();
        let claims = unit.claim(&keys).await?;
        assert_eq!(claims.len(), keys.len(), "the store answers for each key it was asked for");

        let (mut fresh, mut expired) = (vec![], vec![]);
        for (index, claim) in by_id.into_iter().zip(claims) {
            match claim {
                Claim::Fresh => fresh.push(index),
                Claim::AlreadyProcessed => {}
                Claim::Expired => expired.push(Arc::clone(&deliveries[index].event)),
            }
        }
        if !expired.is_empty() {
            self.expired(unit, &expired, unrecorded, outcomes).await?;
        }
        fresh.sort_unstable();
        let proofs = fresh.into_iter().map(|index| deliveries[index]);
        let history = |delivery: &Delivery<E>| {
            let in_doubt = delivery.history.in_doubt || self.doubts.contains(delivery.event.id());
            History { in_doubt, ..delivery.history }
        };
        Ok(proofs.map(|delivery| Claimed::new(Arc::clone(&delivery.event), history(delivery))).collect())
    }

    /// An event whose claim has expired is a duplicate if the application's tables know it, and else nobody can tell:
    /// it is never guessed at (D-9).
    async fn expired<E>(
        &self,
        unit: &mut F::Unit,
        events: &[Arc<E>],
        unrecorded: &mut Unrecorded<H::Receipt>,
        outcomes: &mut Outcomes,
    ) -> Result<(), StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        let known = self.handler.known(unit, events).await?;
        assert_eq!(known.len(), events.len(), "known answers for each event it was asked for");
        for event in events.iter().zip(known).filter(|(_, known)| !known).map(|(event, _)| event) {
            let text = "the event is older than the claims that are kept, and nothing tells whether it was handled";
            let failure = Failure::dead(ErrorClass::EXPIRED, text);
            outcomes.insert(event.id(), Outcome::Refused(unperformed(failure, event.id(), unrecorded)));
        }
        Ok(())
    }

    /// What is written after the calls: first what is taken back, then what was done, last how far the lane has come.
    async fn write<E>(
        &self,
        unit: &mut F::Unit,
        retracted: &[Claimed<E>],
        mut released: Vec<DedupKey>,
        done: &[(Claimed<E>, H::Receipt)],
        step: Option<PositionStep>,
    ) -> Result<(), StoreError>
    where
        E: Event,
        H: EventHandler<E, F::Unit>,
    {
        if !retracted.is_empty() {
            self.handler.retract(unit, retracted).await?;
        }
        if !released.is_empty() {
            released.sort_unstable();
            unit.release(&released).await?;
        }
        if !done.is_empty() {
            self.handler.record(unit, done).await?;
        }
        if let Some(step) = step {
            unit.advance(&step).await?;
        }
        Ok(())
    }
}
