//! A stream whose events a test writes, and which keeps what the consumer answered.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::channel::mpsc;
use futures::stream::StreamExt;

use crate::ports::{Arrival, Progress, RecordStream, StreamControl, StreamError, StreamEvent};
use crate::record::{Assignment, Committable, Epoch, LaneId, LogIdentity, Record, Topic};

/// The consumer's side.
#[derive(Debug)]
pub struct ScriptedStream {
    events: mpsc::UnboundedReceiver<StreamEvent>,
}

/// The test's side. Clones share the script.
#[derive(Debug, Clone)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    events: Option<mpsc::UnboundedSender<StreamEvent>>,
    epoch: u64,
    owned: HashSet<Assignment>,
    positions: HashMap<LaneId, Committable>,
    stale: usize,
    released: Vec<Assignment>,
    started: HashMap<Assignment, Committable>,
    early: HashMap<Assignment, Vec<Vec<Record>>>,
    restarted: HashMap<Assignment, Assignment>,
    stopping: bool,
}

impl ScriptedStream {
    /// A stream and its script.
    pub fn new() -> (Self, Script) {
        let (send, events) = mpsc::unbounded();
        let state = State {
            events: Some(send),
            epoch: 0,
            owned: HashSet::new(),
            positions: HashMap::new(),
            stale: 0,
            released: vec![],
            started: HashMap::new(),
            early: HashMap::new(),
            restarted: HashMap::new(),
            stopping: false,
        };
        (Self { events }, Script { state: Arc::new(Mutex::new(state)) })
    }
}

#[async_trait]
impl RecordStream for ScriptedStream {
    async fn next(&mut self) -> Option<StreamEvent> {
        self.events.next().await
    }
}

impl Script {
    /// Assigns a lane in a new epoch; the group has committed nothing yet.
    pub fn assign(&self, topic: &str, partition: i32) -> Assignment {
        self.assign_with(topic, partition, Self::arrival(None))
    }

    /// Assigns a lane in a new epoch, of which the broker knows this.
    pub fn assign_with(&self, topic: &str, partition: i32, arrival: Arrival) -> Assignment {
        self.lock().assign(LaneId { topic: Topic::new(topic), partition }, arrival)
    }

    /// What the broker knows of the scripted log: offsets 0 to 1,000,000, and what the group has committed.
    pub fn arrival(committed: Option<i64>) -> Arrival {
        Arrival {
            identity: LogIdentity { cluster: "scripted cluster".into(), topic: "scripted topic".into() },
            committed: committed.map(Committable),
            first: Committable(0),
            end: Committable(1_000_000),
        }
    }

    /// Where the consumer started this assignment.
    pub fn started(&self, assignment: &Assignment) -> Option<Committable> {
        self.lock().started.get(assignment).copied()
    }

    /// The assignment that a restart of this one gave, if the consumer asked for one.
    pub fn restarted(&self, assignment: &Assignment) -> Option<Assignment> {
        self.lock().restarted.get(assignment).cloned()
    }

    /// Delivers records, as soon as the lane is started.
    pub fn deliver(&self, assignment: &Assignment, records: Vec<Record>) {
        let mut state = self.lock();
        if state.started.contains_key(assignment) {
            state.send(StreamEvent::Records(assignment.clone(), records));
        } else {
            state.early.entry(assignment.clone()).or_default().push(records);
        }
    }

    /// Asks for the lane back.
    pub fn revoke(&self, assignment: &Assignment) {
        self.lock().send(StreamEvent::Revoked(assignment.clone()));
    }

    /// Takes the lane away.
    pub fn lose(&self, assignment: &Assignment) {
        let mut state = self.lock();
        state.owned.remove(assignment);
        state.send(StreamEvent::Lost(assignment.clone()));
    }

    /// The stream fails.
    pub fn fail(&self, reason: &str) {
        self.lock().send(StreamEvent::Failed(StreamError { reason: reason.to_owned() }));
    }

    /// What the consumer reported as done, over all assignments of the lane.
    pub fn position(&self, lane: &LaneId) -> Option<Committable> {
        self.lock().positions.get(lane).copied()
    }

    /// How many reports came for assignments that are not owned any more.
    pub fn stale_reports(&self) -> usize {
        self.lock().stale
    }

    /// Whether the consumer has released this assignment.
    pub fn is_released(&self, assignment: &Assignment) -> bool {
        self.lock().released.contains(assignment)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self, event: StreamEvent) {
        if let Some(events) = &self.events {
            // The consumer may have ended; a test sees that by its result.
            drop(events.unbounded_send(event));
        }
    }

    fn assign(&mut self, lane: LaneId, arrival: Arrival) -> Assignment {
        self.epoch += 1;
        let assignment = Assignment { lane, epoch: Epoch(self.epoch) };
        self.positions.remove(&assignment.lane);
        self.owned.insert(assignment.clone());
        self.send(StreamEvent::Assigned(assignment.clone(), arrival));
        assignment
    }

    fn end_if_drained(&mut self) {
        if self.stopping && self.owned.is_empty() {
            self.events = None;
        }
    }
}

impl StreamControl for Script {
    fn start(&self, assignment: &Assignment, position: Committable) {
        let mut state = self.lock();
        state.started.insert(assignment.clone(), position);
        for records in state.early.remove(assignment).unwrap_or_default() {
            state.send(StreamEvent::Records(assignment.clone(), records));
        }
    }

    fn restart(&self, assignment: &Assignment) {
        let mut state = self.lock();
        if state.owned.remove(assignment) {
            state.send(StreamEvent::Lost(assignment.clone()));
            let committed = state.positions.get(&assignment.lane).map(|position| position.0);
            let again = state.assign(assignment.lane.clone(), Self::arrival(committed));
            state.restarted.insert(assignment.clone(), again);
        }
    }

    fn progress(&self, assignment: &Assignment, progress: Progress) {
        let mut state = self.lock();
        if !state.owned.contains(assignment) {
            state.stale += 1;
            return;
        }
        let before = state.positions.insert(assignment.lane.clone(), progress.position);
        assert!(before <= Some(progress.position), "D-4: {} went back", assignment.lane);
    }

    fn released(&self, assignment: &Assignment) {
        let mut state = self.lock();
        state.released.push(assignment.clone());
        if state.owned.remove(assignment) {
            state.send(StreamEvent::Lost(assignment.clone()));
        }
        state.end_if_drained();
    }

    fn stop(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.stopping, true) {
            let owned: Vec<Assignment> = state.owned.iter().cloned().collect();
            owned.into_iter().for_each(|assignment| state.send(StreamEvent::Revoked(assignment)));
        }
        state.end_if_drained();
    }
}
