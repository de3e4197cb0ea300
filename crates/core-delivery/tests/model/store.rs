//! The database of the model: transactions that see one another as PostgreSQL's do, fail in every way that the port
//! knows, and are gone when the database goes back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::ConsumerGroup;
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::{LaneLog, LaneMark, MarkAnswer, Owner, StoreError, StoredPosition, UnitOfWorkFactory};
use core_delivery::record::{Committable, LaneId, LogIdentity};
use futures::channel::oneshot;

use crate::probe::{LANES, LaneNo, lane_no};
use crate::unit::Unit;
use crate::world::Context;

#[derive(Clone)]
pub struct Store {
    pub context: Context,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
pub struct Data {
    pub claims: BTreeSet<EventId>,
    pub lines: BTreeMap<EventId, u32>,
    /// What handlers have reserved and neither used nor taken back.
    pub reserved: BTreeSet<EventId>,
    pub positions: BTreeMap<LaneNo, StoredPosition>,
    pub marks: BTreeMap<Option<LaneNo>, LaneMark>,
}

impl Data {
    fn stored(&self) -> [Option<i64>; LANES] {
        std::array::from_fn(|lane| self.positions.get(&lane).map(|position| position.next.0))
    }
}

#[derive(Default)]
pub struct State {
    pub data: Data,
    pub earlier: Vec<Data>,
    /// What open units hold: claims, rows of reservations and of positions.
    pub claims: HashMap<EventId, u64>,
    pub reserving: HashMap<EventId, u64>,
    pub rows: HashMap<LaneNo, u64>,
    pub waiting: Vec<oneshot::Sender<()>>,
    /// How often the database went back; a unit that was open then is gone.
    pub restores: u32,
    units: u64,
}

impl Store {
    pub fn new(context: Context) -> Self {
        Self { context, state: Arc::default() }
    }

    /// The database goes back by some commits, and all sessions end.
    pub fn restore(&self) {
        let mut state = self.lock();
        let back = 1 + self.context.choices.pick(4);
        let at = state.earlier.len().saturating_sub(back);
        let Some(data) = state.earlier.get(at).cloned() else { return };
        state.earlier.truncate(at);
        self.context.choices.note(|| format!("the database goes back by {back} commits, to {:?}", data.stored()));
        self.context.truth.restored(&data.lines, data.stored());
        state.data = data;
        state.restores += 1;
        state.claims.clear();
        state.reserving.clear();
        state.rows.clear();
        state.waiting.clear();
    }

    /// An operator names a position where there is none.
    pub fn set_first_position(&self, lane: LaneNo, position: StoredPosition) -> bool {
        let mut state = self.lock();
        let is_vacant = !state.data.positions.contains_key(&lane);
        if is_vacant {
            self.context.choices.note(|| format!("the position of lane {lane} is named by an operator"));
            self.context.truth.committed(&[], &[], Some((lane, position.next.0)));
            state.data.positions.insert(lane, position);
        }
        is_vacant
    }

    /// What is still reserved.
    pub fn reserved(&self) -> BTreeSet<EventId> {
        self.lock().data.reserved.clone()
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One round trip, and what may go wrong with it.
    pub async fn round_trip(&self, what: &'static str) -> Result<(), StoreError> {
        let Context { choices, executor, profile, .. } = &self.context;
        executor.pause().await;
        if !choices.chance(profile.store) {
            return Ok(());
        }
        let conflicts = choices.pick(2) == 1;
        choices.note(|| format!("the store fails: {what}, {}", if conflicts { "conflict" } else { "unavailable" }));
        Err(if conflicts { StoreError::conflict(what) } else { StoreError::unavailable(what) })
    }
}

#[async_trait]
impl UnitOfWorkFactory for Store {
    type Unit = Unit;

    async fn begin(&self) -> Result<Unit, StoreError> {
        self.round_trip("begin").await?;
        let mut state = self.lock();
        state.units += 1;
        let (id, restores) = (state.units, state.restores);
        Ok(Unit::new(self.clone(), id, restores))
    }

    async fn now(&self) -> Result<UnixMillis, StoreError> {
        self.round_trip("clock").await?;
        let wrong = self.context.choices.chance(self.context.profile.store);
        Ok(self.context.executor.now().plus(Duration::from_secs(if wrong { 90 } else { 0 })))
    }

    async fn positions(&self, _: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        self.round_trip("positions").await?;
        let lane = lane_no(&lane.topic, lane.partition).expect("a lane of the model");
        let found = self.lock().data.positions.get(&lane).cloned();
        self.context.executor.pause().await;
        Ok(found.into_iter().collect())
    }

    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        self.round_trip("mark").await?;
        Ok(self.lock().data.marks.get(&lane_no(&lane.lane.topic, lane.lane.partition)).cloned())
    }

    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError> {
        self.round_trip("set mark").await?;
        let no = lane_no(&lane.lane.topic, lane.lane.partition);
        let answer = {
            let marks = &mut self.lock().data.marks;
            let found = marks.get(&no);
            let is_newer = found.is_none_or(|found| found.revision <= to.revision);
            if found.map(|found| found.owner) == from && is_newer {
                marks.insert(no, to.clone());
                MarkAnswer::Written
            } else {
                MarkAnswer::Superseded
            }
        };
        self.context.choices.note(|| format!("lane {no:?} is marked {:?}, {:?}: {answer:?}", to.standing, to.search));
        // The answer may be lost.
        self.round_trip("answer to a mark").await?;
        Ok(answer)
    }
}

impl State {
    pub fn end(&mut self, unit: u64) {
        self.claims.retain(|_, holder| *holder != unit);
        self.reserving.retain(|_, holder| *holder != unit);
        self.rows.retain(|_, holder| *holder != unit);
        self.waiting.clear();
    }
}

/// Where a lane stands that an operator starts at its first record.
pub fn first_position(identity: LogIdentity) -> StoredPosition {
    StoredPosition { identity, next: Committable(0) }
}
