//! One transaction of the model's database.

use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::{Claim, DedupKey};
use core_delivery::event::EventId;
use core_delivery::ports::{PositionStep, StoreError, StoredPosition, UnitOfWork};
use futures::channel::oneshot;

use crate::probe::{Kind, LaneNo, Probe, lane_no};
use crate::store::{State, Store};
use crate::world::Context;

/// Whether something is reserved for an event.
#[derive(Clone, Copy)]
pub enum Reserved {
    Yes,
    No,
}

pub struct Unit {
    store: Store,
    id: u64,
    restores: u32,
    /// What is reserved from now on, or not any more.
    reservations: Vec<(EventId, Reserved)>,
    lines: Vec<Probe>,
    step: Option<(LaneNo, PositionStep)>,
    failed: bool,
}

impl Unit {
    pub fn new(store: Store, id: u64, restores: u32) -> Self {
        Self { store, id, restores, reservations: vec![], lines: vec![], step: None, failed: false }
    }

    async fn statement(&mut self, what: &'static str) -> Result<(), StoreError> {
        let answer = self.store.round_trip(what).await;
        self.check(answer)
    }

    /// A unit in which something failed can only be rolled back, and so can one whose session has ended.
    fn check(&mut self, answer: Result<(), StoreError>) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::conflict("an earlier statement of this unit failed"));
        }
        let is_alive = self.store.lock().restores == self.restores;
        let answer = if is_alive { answer } else { Err(StoreError::unavailable("the session has ended")) };
        self.failed = answer.is_err();
        answer
    }

    /// Reserves something for events, or takes it back.
    pub async fn reserve(&mut self, events: Vec<EventId>, reserved: Reserved) -> Result<(), StoreError> {
        self.statement("reserve").await?;
        for event in events {
            self.wait_for(|state, id| (*state.reserving.entry(event).or_insert(id) == id).then_some(())).await?;
            self.reservations.push((event, reserved));
        }
        Ok(())
    }

    /// The business change of one event.
    pub async fn write(&mut self, event: &Probe) -> Result<(), StoreError> {
        self.statement("write").await?;
        if event.content.kind() == Kind::Poison {
            self.failed = true;
            return Err(StoreError::rejected(format!("event {}", event.content.number)));
        }
        self.lines.push(event.clone());
        Ok(())
    }

    /// Waits until `take` gets what it wants.
    async fn wait_for<T>(&mut self, mut take: impl FnMut(&mut State, u64) -> Option<T>) -> Result<T, StoreError> {
        loop {
            let freed = {
                let mut state = self.store.lock();
                if let Some(taken) = take(&mut state, self.id) {
                    return Ok(taken);
                }
                let (wake, freed) = oneshot::channel();
                state.waiting.push(wake);
                freed
            };
            // The other end is dropped when a unit ends.
            let (Ok(()) | Err(oneshot::Canceled)) = freed.await;
            self.check(Ok(()))?;
        }
    }

    /// Makes everything of it visible.
    fn apply(&mut self) {
        let store = self.store.clone();
        let mut state = store.lock();
        let before = state.data.clone();
        state.earlier.push(before);
        let State { claims, data, .. } = &mut *state;
        let mut claimed: Vec<EventId> =
            claims.iter().filter(|(_, unit)| **unit == self.id).map(|(event, _)| *event).collect();
        claimed.sort_unstable();
        data.claims.extend(&claimed);
        for (event, reserved) in self.reservations.drain(..) {
            match reserved {
                Reserved::Yes => drop(data.reserved.insert(event)),
                Reserved::No => drop(data.reserved.remove(&event)),
            }
        }
        let lines: Vec<EventId> = self.lines.iter().map(|line| line.id).collect();
        for event in &lines {
            *data.lines.entry(*event).or_default() += 1;
            data.reserved.remove(event);
        }
        let mut position = None;
        if let Some((lane, step)) = self.step.take() {
            position = Some((lane, step.to.0));
            data.positions.insert(lane, StoredPosition { identity: step.identity, next: step.to });
        }
        let Context { choices, truth, .. } = &self.store.context;
        choices.note(|| {
            let numbers: Vec<u32> = self.lines.iter().map(|line| line.content.number).collect();
            format!("unit {} commits events {numbers:?}, position {position:?}", self.id)
        });
        truth.lines(&self.lines);
        truth.committed(&claimed, &lines, position);
        state.end(self.id);
    }
}

#[async_trait]
impl UnitOfWork for Unit {
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError> {
        self.statement("claim").await?;
        let mut answers = Vec::with_capacity(keys.len());
        for event in keys.iter().map(DedupKey::event_id) {
            let answer = self.wait_for(|state, id| {
                if state.data.claims.contains(&event) {
                    return Some(Claim::AlreadyProcessed);
                }
                (*state.claims.entry(event).or_insert(id) == id).then_some(Claim::Fresh)
            });
            answers.push(answer.await?);
        }
        Ok(answers)
    }

    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError> {
        self.statement("release").await?;
        let mut state = self.store.lock();
        for event in keys.iter().map(DedupKey::event_id) {
            assert_eq!(state.claims.remove(&event), Some(self.id), "only an own claim is released");
        }
        state.waiting.clear();
        Ok(())
    }

    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError> {
        self.statement("advance").await?;
        let lane = lane_no(&step.lane.topic, step.lane.partition).expect("a lane of the model");
        self.wait_for(|state, id| (*state.rows.entry(lane).or_insert(id) == id).then_some(())).await?;
        let found = self.store.lock().data.positions.get(&lane).map(|position| position.next);
        if found != step.from {
            self.failed = true;
            let context = format!("{}: expected {:?}, found {found:?}", step.lane, step.from);
            self.store.context.choices.note(|| format!("unit {} is fenced: {context}", self.id));
            return Err(StoreError::Moved { context });
        }
        self.step = Some((lane, step.clone()));
        Ok(())
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.statement("commit").await?;
        let Context { choices, executor, profile, .. } = self.store.context.clone();
        if !choices.chance(profile.unknown) {
            self.apply();
            executor.pause().await;
            return Ok(());
        }
        match choices.pick(3) {
            0 => self.apply(),
            1 => choices.note(|| format!("unit {} is rolled back at its commit", self.id)),
            _ => {
                // The server goes on with it after the client has lost its connection.
                choices.note(|| format!("unit {} commits later", self.id));
                let later = executor.sleep(Duration::from_millis([50, 500, 5_000][choices.pick(3)]));
                let rest = async move {
                    later.await;
                    if self.check(Ok(())).is_ok() {
                        self.apply();
                    }
                };
                executor.spawn(0, "late commit", Box::pin(rest));
            }
        }
        Err(StoreError::commit_unknown("the answer was lost"))
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.store.lock().end(self.id);
    }
}
