//! A store in memory that keeps the contract of the unit of work, with faults on demand. Its "business table" is a
//! list of lines that a handler writes in the unit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::channel::oneshot;

use crate::claim::{Claim, ConsumerGroup, DedupKey};
use crate::event::{EventId, UnixMillis};
use crate::ports::{
    LaneLog, LaneMark, MarkAnswer, Owner, PositionStep, StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory,
};
use crate::record::{Committable, LaneId};

/// The store. Clones share their contents.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    units: u64,
    claims: BTreeMap<DedupKey, Holder>,
    positions: HashMap<(ConsumerGroup, LaneId), StoredPosition>,
    marks: HashMap<LaneLog, LaneMark>,
    marks_written: usize,
    /// The unit that moves each lane which is being moved.
    moving: HashMap<(ConsumerGroup, LaneId), u64>,
    floor: Option<EventId>,
    floors: HashMap<ConsumerGroup, EventId>,
    clock: UnixMillis,
    lines: Vec<String>,
    waiting: Vec<oneshot::Sender<()>>,
    faults: VecDeque<(Operation, StoreError)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Open(u64),
    Committed,
}

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening a unit.
    Begin,
    /// Claiming.
    Claim,
    /// Releasing.
    Release,
    /// Writing a line.
    Write,
    /// Reading the clock.
    Clock,
    /// Reading positions.
    Positions,
    /// Reading a mark.
    Mark,
    /// Writing a mark.
    SetMark,
    /// Moving a position.
    Advance,
    /// The commit, before anything is stored.
    Commit,
    /// The commit, after everything is stored: the answer is lost.
    Committed,
}

impl MemoryStore {
    /// The next time this operation is reached, it fails with this error. Faults strike in the order given.
    pub fn fail_next(&self, operation: Operation, error: StoreError) {
        self.lock().faults.push_back((operation, error));
    }

    /// The committed lines, in commit order.
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Sets the store's clock, which stands still.
    pub fn set_clock(&self, now: UnixMillis) {
        self.lock().clock = now;
    }

    /// From now on ids below the floor are not claimed, and the claims below it are gone.
    pub fn expire_below(&self, floor: EventId) {
        let mut state = self.lock();
        state.floor = Some(floor);
        state.claims.retain(|key, _| key.event_id() >= floor);
    }

    /// From now on ids of the group below the floor are not claimed; the claims below it are still there.
    pub fn raise_floor(&self, group: &ConsumerGroup, floor: EventId) {
        self.lock().floors.insert(group.clone(), floor);
    }

    /// The stored position of a lane.
    pub fn position(&self, group: &ConsumerGroup, lane: &LaneId) -> Option<Committable> {
        self.lock().positions.get(&(group.clone(), lane.clone())).map(|position| position.next)
    }

    /// Puts a position into the store, as a restored database or an operator would; `None` removes it.
    pub fn set_position(&self, group: &ConsumerGroup, lane: &LaneId, position: Option<StoredPosition>) {
        let (key, mut state) = ((group.clone(), lane.clone()), self.lock());
        match position {
            Some(position) => drop(state.positions.insert(key, position)),
            None => drop(state.positions.remove(&key)),
        }
    }

    /// The marks, in no order.
    pub fn marks(&self) -> Vec<(LaneLog, LaneMark)> {
        self.lock().marks.iter().map(|(lane, mark)| (lane.clone(), mark.clone())).collect()
    }

    /// How many marks were written.
    pub fn marks_written(&self) -> usize {
        self.lock().marks_written
    }

    /// Forgets a committed event: its claim and its line, as a database does that went back.
    pub fn forget(&self, key: &DedupKey, line: &str) {
        let mut state = self.lock();
        state.claims.remove(key);
        state.lines.retain(|kept| kept != line);
    }

    /// The committed claims.
    pub fn claims(&self) -> Vec<DedupKey> {
        let state = self.lock();
        let committed = state.claims.iter().filter(|(_, holder)| **holder == Holder::Committed);
        committed.map(|(key, _)| key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, operation: Operation) -> Result<(), StoreError> {
        let faults = &mut self.lock().faults;
        match faults.front() {
            Some((at, _)) if *at == operation => Err(faults.pop_front().expect("the front was just seen").1),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl UnitOfWorkFactory for MemoryStore {
    type Unit = MemoryUnit;

    async fn begin(&self) -> Result<MemoryUnit, StoreError> {
        self.strike(Operation::Begin)?;
        let mut state = self.lock();
        state.units += 1;
        Ok(MemoryUnit { id: state.units, store: self.clone(), lines: vec![], steps: vec![], failed: false })
    }

    async fn now(&self) -> Result<UnixMillis, StoreError> {
        self.strike(Operation::Clock)?;
        Ok(self.lock().clock)
    }

    async fn positions(&self, group: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        self.strike(Operation::Positions)?;
        Ok(self.lock().positions.get(&(group.clone(), lane.clone())).cloned().into_iter().collect())
    }

    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        self.strike(Operation::Mark)?;
        Ok(self.lock().marks.get(lane).cloned())
    }

    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError> {
        self.strike(Operation::SetMark)?;
        let mut state = self.lock();
        let found = state.marks.get(lane);
        let is_newer = found.is_none_or(|found| found.revision <= to.revision);
        if found.map(|found| found.owner) != from || !is_newer {
            return Ok(MarkAnswer::Superseded);
        }
        state.marks.insert(lane.clone(), to.clone());
        state.marks_written += 1;
        Ok(MarkAnswer::Written)
    }
}

/// An open unit of the memory store.
#[derive(Debug)]
pub struct MemoryUnit {
    id: u64,
    store: MemoryStore,
    lines: Vec<String>,
    steps: Vec<PositionStep>,
    failed: bool,
}

impl MemoryUnit {
    /// The business change: writes a line, visible when the unit commits.
    pub fn write(&mut self, line: impl Into<String>) -> Result<(), StoreError> {
        self.strike(Operation::Write)?;
        self.lines.push(line.into());
        Ok(())
    }

    /// Like a database's transaction, a unit in which something failed can only be rolled back.
    fn strike(&mut self, operation: Operation) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::conflict("an earlier statement of this unit failed"));
        }
        let struck = self.store.strike(operation);
        self.failed = struck.is_err();
        struck
    }

    async fn claim_one(&self, key: &DedupKey) -> Claim {
        loop {
            let freed = {
                let mut state = self.store.lock();
                match state.claims.get(key) {
                    None if Some(key.event_id()) < state.floor.max(state.floors.get(key.group()).copied()) => {
                        return Claim::Expired;
                    }
                    None => {
                        state.claims.insert(key.clone(), Holder::Open(self.id));
                        return Claim::Fresh;
                    }
                    Some(Holder::Open(unit)) if *unit != self.id => {
                        let (wake, freed) = oneshot::channel();
                        state.waiting.push(wake);
                        freed
                    }
                    Some(_) => return Claim::AlreadyProcessed,
                }
            };
            // The sender is dropped when a unit ends; the key is then looked at again.
            match freed.await {
                Ok(()) | Err(oneshot::Canceled) => {}
            }
        }
    }

    /// Waits until no other open unit moves the lane, and lets none move it until this one has ended.
    async fn hold_lane(&self, step: &PositionStep) {
        let lane = (step.group.clone(), step.lane.clone());
        loop {
            let freed = {
                let mut state = self.store.lock();
                match state.moving.get(&lane) {
                    Some(unit) if *unit != self.id => {
                        let (wake, freed) = oneshot::channel();
                        state.waiting.push(wake);
                        freed
                    }
                    _ => {
                        state.moving.insert(lane, self.id);
                        return;
                    }
                }
            };
            match freed.await {
                Ok(()) | Err(oneshot::Canceled) => {}
            }
        }
    }
}

#[async_trait]
impl UnitOfWork for MemoryUnit {
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError> {
        self.strike(Operation::Claim)?;
        let mut answers = Vec::with_capacity(keys.len());
        for key in keys {
            answers.push(self.claim_one(key).await);
        }
        Ok(answers)
    }

    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError> {
        self.strike(Operation::Release)?;
        let mut state = self.store.lock();
        for key in keys {
            assert_eq!(state.claims.remove(key), Some(Holder::Open(self.id)), "only an own open claim is released");
        }
        state.waiting.clear();
        Ok(())
    }

    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError> {
        self.strike(Operation::Advance)?;
        self.hold_lane(step).await;
        let found = self.store.position(&step.group, &step.lane);
        if found != step.from {
            self.failed = true;
            let context = format!("{}: expected {:?}, found {found:?}", step.lane, step.from);
            return Err(StoreError::Moved { context });
        }
        self.steps.push(step.clone());
        Ok(())
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.strike(Operation::Commit)?;
        {
            let mut state = self.store.lock();
            let own = state.claims.values_mut().filter(|holder| **holder == Holder::Open(self.id));
            own.for_each(|holder| *holder = Holder::Committed);
            state.lines.append(&mut self.lines);
            for step in self.steps.drain(..) {
                let position = StoredPosition { identity: step.identity, next: step.to };
                state.positions.insert((step.group, step.lane), position);
            }
        }
        self.strike(Operation::Committed)
    }
}

impl Drop for MemoryUnit {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        state.claims.retain(|_, holder| *holder != Holder::Open(self.id));
        state.moving.retain(|_, unit| *unit != self.id);
        state.waiting.clear();
    }
}
