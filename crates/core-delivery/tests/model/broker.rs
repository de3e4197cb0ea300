//! The broker of the model and the adapter on top of it: logs with gaps, a group of members, lanes that come and go,
//! and commits that are fenced. What is done when is decided in `turns`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use core_delivery::event::UnixMillis;
use core_delivery::ports::{Progress, StreamEvent};
use core_delivery::record::{Assignment, Epoch, Header, LogIdentity};
use futures::channel::mpsc::UnboundedSender;

use crate::executor::Life;
use crate::probe::{CONSUMED, Content, LANES, LaneNo, Place, lane_id, lane_no};
use crate::truth::Run;
use crate::world::Context;

#[derive(Clone)]
pub struct Broker {
    pub context: Context,
    state: Arc<Mutex<State>>,
}

pub struct State {
    pub logs: [Log; LANES],
    pub members: BTreeMap<Life, Member>,
}

#[derive(Default)]
pub struct Log {
    pub records: Vec<Entry>,
    pub end: i64,
    pub committed: Option<i64>,
    pub owner: Option<Life>,
}

pub struct Entry {
    pub offset: i64,
    pub content: Content,
    pub headers: Vec<Header>,
    pub timestamp: UnixMillis,
}

pub struct Member {
    pub events: Option<UnboundedSender<StreamEvent>>,
    pub epochs: u64,
    pub lanes: BTreeMap<LaneNo, Lane>,
    pub stopping: bool,
    ended: Option<Result<(), String>>,
}

/// A lane as a member knows it, which may have lost it without knowing.
pub struct Lane {
    pub epoch: u64,
    /// Where the kernel started it.
    pub started: bool,
    /// The offset after the last delivered record, and where the client reads on.
    pub delivered: i64,
    pub position: Option<i64>,
    pub unsettled: usize,
    pub draining: bool,
    /// When it is given away, drained or not.
    pub drain_limit: Duration,
    /// Nothing hinders it any more: it needs no limit.
    pub must_drain: bool,
    pub released: bool,
    pub restarting: bool,
}

pub fn identity() -> LogIdentity {
    LogIdentity { cluster: "cluster".into(), topic: "topic".into() }
}

pub fn assignment(lane: LaneNo, epoch: u64) -> Assignment {
    Assignment { lane: lane_id(lane), epoch: Epoch(epoch) }
}

impl Broker {
    pub fn new(context: Context) -> Self {
        let state = State { logs: Default::default(), members: BTreeMap::new() };
        Self { context, state: Arc::new(Mutex::new(state)) }
    }

    /// Appends a record.
    pub fn write(&self, lane: LaneNo, content: Content, headers: Vec<Header>) {
        let gap = if self.context.choices.chance(16) { 2 } else { 0 };
        let timestamp = self.context.executor.now();
        let log = &mut self.lock().logs[lane];
        let offset = log.end + gap;
        log.end = offset + 1;
        log.records.push(Entry { offset, content, headers, timestamp });
        self.context.truth.written(Place { lane, offset }, content);
        self.context.choices.note(|| format!("{content:?} is written to lane {lane} offset {offset}"));
    }

    pub fn join(&self, life: Life, events: UnboundedSender<StreamEvent>) {
        let member = Member { events: Some(events), epochs: 0, lanes: BTreeMap::new(), stopping: false, ended: None };
        self.lock().members.insert(life, member);
    }

    /// The process is gone.
    pub fn leave(&self, life: Life) {
        let mut state = self.lock();
        let gone = state.members.remove(&life);
        state.logs.iter_mut().filter(|log| log.owner == Some(life)).for_each(|log| log.owner = None);
        drop(state);
        drop(gone);
    }

    pub fn ended(&self, life: Life, how: Result<(), String>) {
        if let Some(member) = self.lock().members.get_mut(&life) {
            member.ended = Some(how);
        }
    }

    /// How the process ended by itself, if it did.
    pub fn take_ended(&self) -> Option<(Life, Result<(), String>)> {
        let mut state = self.lock();
        state.members.iter_mut().find_map(|(life, member)| Some((*life, member.ended.take()?)))
    }

    /// Whether everything is read and committed.
    pub fn is_done(&self) -> bool {
        let state = self.lock();
        let last = |log: &Log| log.records.last().map(|entry| entry.offset + 1);
        state.logs[..CONSUMED].iter().all(|log| log.owner.is_some() && last(log) <= log.committed)
    }

    pub fn start(&self, life: Life, of: &Assignment, position: i64) {
        self.with_lane(life, of, |context, run, lane| {
            if !lane.started && !lane.restarting {
                context.choices.note(|| format!("{run:?} starts at {position}"));
                context.truth.started(run, position);
                (lane.started, lane.delivered) = (true, position);
            }
        });
    }

    pub fn restart(&self, life: Life, of: &Assignment) {
        self.with_lane(life, of, |context, run, lane| {
            context.choices.note(|| format!("{run:?} wants to start anew"));
            (lane.restarting, lane.position) = (true, None);
        });
    }

    pub fn progress(&self, life: Life, of: &Assignment, progress: Progress) {
        self.with_lane(life, of, |context, run, lane| {
            if lane.restarting {
                return;
            }
            let position = progress.position.0;
            context.choices.note(|| format!("{run:?} reports {position}"));
            if !lane.started {
                context.truth.report("D-3", format!("{run:?} reported {position} before its start"));
            }
            context.truth.progress(run, position);
            lane.position = lane.position.max(Some(position));
            lane.unsettled = lane.unsettled.saturating_sub(progress.records);
        });
    }

    pub fn released(&self, life: Life, of: &Assignment) {
        self.with_lane(life, of, |_, _, lane| lane.released = true);
    }

    pub fn stop(&self, life: Life) {
        if let Some(member) = self.lock().members.get_mut(&life) {
            member.stopping = true;
        }
    }

    /// Words of an older epoch change nothing.
    fn with_lane(&self, life: Life, of: &Assignment, act: impl FnOnce(&Context, Run, &mut Lane)) {
        let no = lane_no(&of.lane.topic, of.lane.partition).expect("a lane of the model");
        let mut state = self.lock();
        let lane = state.members.get_mut(&life).and_then(|member| member.lanes.get_mut(&no));
        if let Some(lane) = lane.filter(|lane| lane.epoch == of.epoch.0) {
            act(&self.context, Run { life, lane: no, epoch: of.epoch.0 }, lane);
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    pub fn send(&self, event: StreamEvent) {
        if let Some(events) = &self.events {
            // The process may have ended by itself.
            drop(events.unbounded_send(event));
        }
    }
}
