//! The table of owned lanes: epochs, what was delivered and is not settled, positions, pauses. Only rules: no client,
//! no lock, no clock.

use std::collections::HashMap;

use core_delivery::ports::Progress;
use core_delivery::record::{Assignment, Epoch, LaneId};

/// How much of a lane may be delivered and not yet settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneLimits {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// All lanes that this member owns.
#[derive(Debug)]
pub(crate) struct LaneTable {
    limits: LaneLimits,
    epochs: u64,
    lanes: HashMap<LaneId, Lane>,
}

#[derive(Debug)]
struct Lane {
    epoch: Epoch,
    is_released: bool,
    is_paused: bool,
    /// Delivered and not settled.
    records: usize,
    bytes: usize,
    /// The offset after the last delivered record.
    delivered: Option<i64>,
    /// What may be committed; never goes back (D-4) and never passes what was delivered (D-3).
    position: Option<i64>,
    /// The part of it that was handed to the broker.
    sent: Option<i64>,
}

/// What became of delivered records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// They belong to the lane.
    Accepted,
    /// The lane has been given away, or is of another epoch now: forget them.
    Stale,
    /// They start below what was delivered: the partition was reset, and the lane begins again with a new epoch.
    Restarted(Assignment),
}

/// What became of a report of progress.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It was counted.
    Counted,
    /// It is of an older epoch and changes nothing (D-5).
    Stale,
    /// It claims more than was delivered and changes no position.
    Impossible,
}

/// Lanes to stop and to start reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) pause: Vec<LaneId>,
    pub(crate) resume: Vec<LaneId>,
}

impl LaneTable {
    pub(crate) fn new(limits: LaneLimits) -> Self {
        Self { limits, epochs: 0, lanes: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Takes a lane over, with a new epoch.
    pub(crate) fn assign(&mut self, lane: LaneId) -> Assignment {
        self.epochs += 1;
        let epoch = Epoch(self.epochs);
        let fresh = Lane {
            epoch,
            is_released: false,
            is_paused: false,
            records: 0,
            bytes: 0,
            delivered: None,
            position: None,
            sent: None,
        };
        self.lanes.insert(lane.clone(), fresh);
        Assignment { lane, epoch }
    }

    /// The lane as it is owned now.
    pub(crate) fn assignment(&self, lane: &LaneId) -> Option<Assignment> {
        self.lanes.get(lane).map(|owned| Assignment { lane: lane.clone(), epoch: owned.epoch })
    }

    /// Everything that is owned.
    pub(crate) fn assignments(&self) -> Vec<Assignment> {
        self.lanes.iter().map(|(lane, owned)| Assignment { lane: lane.clone(), epoch: owned.epoch }).collect()
    }

    /// Lets a lane go.
    pub(crate) fn remove(&mut self, lane: &LaneId) -> Option<Assignment> {
        let assignment = self.assignment(lane);
        self.lanes.remove(lane);
        assignment
    }

    /// Counts records that are about to be delivered: `first..=last` of one lane.
    pub(crate) fn deliver(&mut self, to: &Assignment, first: i64, last: i64, records: usize, bytes: usize) -> Delivery {
        let Some(lane) = self.lanes.get(&to.lane).filter(|lane| lane.epoch == to.epoch) else {
            return Delivery::Stale;
        };
        let outcome = if lane.delivered.is_some_and(|delivered| first < delivered) {
            let is_paused = lane.is_paused;
            let restarted = self.assign(to.lane.clone());
            self.set_paused(&to.lane, is_paused);
            Delivery::Restarted(restarted)
        } else {
            Delivery::Accepted
        };
        if let Some(lane) = self.lanes.get_mut(&to.lane) {
            lane.delivered = Some(last + 1);
            lane.records += records;
            lane.bytes += bytes;
        }
        outcome
    }

    /// Takes a report of the kernel.
    pub(crate) fn progress(&mut self, of: &Assignment, progress: Progress) -> Report {
        let Some(lane) = self.lanes.get_mut(&of.lane).filter(|lane| lane.epoch == of.epoch) else {
            return Report::Stale;
        };
        lane.records = lane.records.saturating_sub(progress.records);
        lane.bytes = lane.bytes.saturating_sub(progress.bytes);
        let next = progress.position.0;
        if lane.position.is_some_and(|position| next <= position) {
            return Report::Counted;
        }
        if lane.delivered.is_none_or(|delivered| next > delivered) {
            return Report::Impossible;
        }
        lane.position = Some(next);
        Report::Counted
    }

    /// Nothing of the lane runs any more.
    pub(crate) fn released(&mut self, of: &Assignment) {
        if let Some(lane) = self.lanes.get_mut(&of.lane).filter(|lane| lane.epoch == of.epoch) {
            lane.is_released = true;
        }
    }

    /// Whether nothing of these lanes runs any more.
    pub(crate) fn are_released(&self, assignments: &[Assignment]) -> bool {
        assignments.iter().all(|assignment| {
            let lane = self.lanes.get(&assignment.lane);
            lane.is_none_or(|lane| lane.epoch != assignment.epoch || lane.is_released)
        })
    }

    /// Which lanes to pause (one of the limits is reached) and to resume (half of both is free again). It is
    /// remembered when [`set_paused`](Self::set_paused) says so.
    pub(crate) fn flow(&self) -> Flow {
        let mut flow = Flow::default();
        for (id, lane) in &self.lanes {
            let is_full = lane.records >= self.limits.records || lane.bytes >= self.limits.bytes;
            let has_room = lane.records <= self.limits.records / 2 && lane.bytes <= self.limits.bytes / 2;
            if is_full && !lane.is_paused {
                flow.pause.push(id.clone());
            } else if has_room && lane.is_paused {
                flow.resume.push(id.clone());
            }
        }
        flow
    }

    pub(crate) fn set_paused(&mut self, lane: &LaneId, is_paused: bool) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.is_paused = is_paused;
        }
    }

    /// The lanes that are paused, of those that are still owned.
    pub(crate) fn paused(&self) -> Vec<LaneId> {
        self.lanes.iter().filter(|(_, lane)| lane.is_paused).map(|(id, _)| id.clone()).collect()
    }

    /// Positions that moved since they were sent.
    pub(crate) fn moved(&self) -> Vec<(LaneId, i64)> {
        let moved = self.lanes.iter().filter(|(_, lane)| lane.position > lane.sent);
        moved.filter_map(|(id, lane)| Some((id.clone(), lane.position?))).collect()
    }

    /// All known positions.
    pub(crate) fn positions(&self) -> Vec<(LaneId, i64)> {
        self.lanes.iter().filter_map(|(id, lane)| Some((id.clone(), lane.position?))).collect()
    }

    /// The position of one lane.
    pub(crate) fn position(&self, of: &Assignment) -> Option<i64> {
        self.lanes.get(&of.lane).filter(|lane| lane.epoch == of.epoch)?.position
    }

    pub(crate) fn set_sent(&mut self, lane: &LaneId, position: i64) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.sent = lane.sent.max(Some(position));
        }
    }

    /// Whether [`reached`](Self::reached) could change anything.
    pub(crate) fn has_settled(&self) -> bool {
        self.lanes.values().any(Lane::is_settled)
    }

    /// The consumer stands at `next`. Where everything delivered is settled, what lies in between is no record but
    /// transaction markers and aborted data, and the position follows, or the lag would never reach zero.
    ///
    /// Before the first delivery of an epoch the consumer's position is not trusted: it may be a former owner's.
    pub(crate) fn reached(&mut self, lane: &LaneId, next: i64) {
        if let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.is_settled()) {
            lane.position = lane.position.max(Some(next));
            lane.delivered = lane.delivered.max(Some(next));
        }
    }
}

impl Lane {
    fn is_settled(&self) -> bool {
        self.delivered.is_some() && self.position == self.delivered
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
