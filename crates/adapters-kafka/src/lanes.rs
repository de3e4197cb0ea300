//! The table of owned lanes: epochs, stages, what was delivered and is not settled, positions, pauses. Only rules: no
//! client, no lock, no clock.

use std::collections::HashMap;

use core_delivery::ports::Progress;
use core_delivery::record::{Assignment, Committable, Epoch, LaneId};

use self::stages::Stage;

mod stages;

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
    stage: Stage,
    is_released: bool,
    is_paused: bool,
    /// Delivered and not settled.
    records: usize,
    bytes: usize,
    /// The offset after the last delivered record; where the lane starts, before the first one.
    delivered: i64,
    /// What may be committed; never goes back within an epoch (D-4) and never passes what was delivered (D-3). Nothing
    /// before the first report.
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
    /// They start below what was delivered: the partition was reset. They are forgotten, and the lane restarts.
    Reset,
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

    /// Takes a lane over, with a new epoch. It is to be paused at once.
    pub(crate) fn assign(&mut self, lane: LaneId) -> Assignment {
        self.epochs += 1;
        let epoch = Epoch(self.epochs);
        let fresh = Lane {
            epoch,
            stage: Stage::Unannounced,
            is_released: false,
            is_paused: true,
            records: 0,
            bytes: 0,
            delivered: 0,
            position: None,
            sent: None,
        };
        self.lanes.insert(lane.clone(), fresh);
        Assignment { lane, epoch }
    }

    /// Everything that is owned.
    pub(crate) fn lanes(&self) -> Vec<LaneId> {
        self.lanes.keys().cloned().collect()
    }

    /// Lets a lane go, and returns what the kernel knows it as, if it does.
    pub(crate) fn remove(&mut self, id: &LaneId) -> Option<Assignment> {
        let lane = self.lanes.remove(id).filter(|lane| lane.stage != Stage::Unannounced)?;
        Some(Assignment { lane: id.clone(), epoch: lane.epoch })
    }

    /// Counts records that are about to be delivered: `first..=last` of one lane.
    pub(crate) fn deliver(&mut self, to: &Assignment, first: i64, last: i64, records: usize, bytes: usize) -> Delivery {
        let Some(lane) = self.of(to).filter(|lane| lane.is_running()) else {
            return Delivery::Stale;
        };
        if first < lane.delivered {
            self.restart(to);
            return Delivery::Reset;
        }
        lane.delivered = last + 1;
        lane.records += records;
        lane.bytes += bytes;
        Delivery::Accepted
    }

    /// Takes a report of the kernel.
    pub(crate) fn progress(&mut self, of: &Assignment, progress: Progress) -> Report {
        let Some(lane) = self.of(of) else { return Report::Stale };
        let from = match lane.stage {
            Stage::Running { from } => from,
            // What the kernel says about the start itself, before the client has been led to it.
            Stage::Starting(from) if progress == (Progress { position: Committable(from), records: 0, bytes: 0 }) => {
                lane.position = Some(from);
                return Report::Counted;
            }
            Stage::Restarting => return Report::Stale,
            _ => return Report::Impossible,
        };
        lane.records = lane.records.saturating_sub(progress.records);
        lane.bytes = lane.bytes.saturating_sub(progress.bytes);
        let next = progress.position.0;
        if next > lane.delivered {
            return Report::Impossible;
        }
        if next >= from {
            lane.position = lane.position.max(Some(next));
        }
        Report::Counted
    }

    /// Nothing of the lane runs any more.
    pub(crate) fn released(&mut self, of: &Assignment) {
        if let Some(lane) = self.of(of) {
            lane.is_released = true;
        }
    }

    /// Whether nothing of these lanes runs any more.
    pub(crate) fn are_released(&self, assignments: &[Assignment]) -> bool {
        assignments.iter().all(|assignment| {
            let lane = self.lanes.get(&assignment.lane);
            lane.is_none_or(|lane| {
                lane.epoch != assignment.epoch || lane.is_released || lane.stage == Stage::Restarting
            })
        })
    }

    /// Which lanes to pause (they do not run, or one of the limits is reached) and to resume (half of both is free
    /// again). It is remembered when [`set_paused`](Self::set_paused) says so.
    pub(crate) fn flow(&self) -> Flow {
        let mut flow = Flow::default();
        for (id, lane) in &self.lanes {
            let is_full = !lane.is_running() || lane.records >= self.limits.records || lane.bytes >= self.limits.bytes;
            let has_room =
                lane.is_running() && lane.records <= self.limits.records / 2 && lane.bytes <= self.limits.bytes / 2;
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
    /// Only a running lane follows: until it is led to its start, the consumer may stand anywhere. And only one of which
    /// the kernel has reported a position: before that the store may hold none, and Kafka's must not be the only one.
    pub(crate) fn reached(&mut self, lane: &LaneId, next: i64) {
        if let Some(lane) = self
            .lanes
            .get_mut(lane)
            .filter(|lane| lane.is_settled() && lane.position.is_some() && next > lane.delivered)
        {
            lane.position = Some(next);
            lane.delivered = next;
        }
    }

    fn of(&mut self, assignment: &Assignment) -> Option<&mut Lane> {
        self.lanes.get_mut(&assignment.lane).filter(|lane| lane.epoch == assignment.epoch)
    }
}

impl Lane {
    fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    fn is_settled(&self) -> bool {
        match self.stage {
            Stage::Running { from } => self.position.unwrap_or(from) == self.delivered,
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
