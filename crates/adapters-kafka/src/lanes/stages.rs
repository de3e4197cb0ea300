//! From the assignment of a lane to its first record, and back when it is given up. Only rules, as the rest of the
//! table.

use core_delivery::record::{Assignment, LaneId};

use super::{Lane, LaneTable};

/// How far a lane is from its assignment to its records. Only a running lane delivers, and has positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// What the broker knows of it is being learned; the kernel does not know of it.
    Unannounced,
    /// The kernel is deciding where it starts.
    Announced,
    /// The kernel has decided, and the client is not there yet.
    Starting(i64),
    /// Records are delivered.
    Running { from: i64 },
    /// Given up, to be assigned anew. Nothing of it runs any more.
    Restarting,
}

impl LaneTable {
    /// The lanes that the kernel does not know of yet.
    pub(crate) fn unannounced(&self) -> Vec<Assignment> {
        self.those(|lane| lane.stage == Stage::Unannounced)
    }

    /// The kernel is about to be told of a lane. False if it is not waited for any more.
    pub(crate) fn announce(&mut self, of: &Assignment) -> bool {
        self.enter(of, Stage::Announced, |stage| stage == Stage::Unannounced)
    }

    /// The kernel's decision. False if nobody waits for it.
    pub(crate) fn start(&mut self, of: &Assignment, position: i64) -> bool {
        self.enter(of, Stage::Starting(position), |stage| stage == Stage::Announced)
    }

    /// The lanes that the client must be led to, and where to.
    pub(crate) fn starting(&self) -> Vec<(LaneId, i64)> {
        let starting = self.lanes.iter().filter_map(|(id, lane)| match lane.stage {
            Stage::Starting(position) => Some((id.clone(), position)),
            _ => None,
        });
        starting.collect()
    }

    /// The client reads the lane from its start on.
    pub(crate) fn started(&mut self, id: &LaneId) {
        if let Some(lane) = self.lanes.get_mut(id)
            && let Stage::Starting(from) = lane.stage
        {
            lane.stage = Stage::Running { from };
            lane.delivered = from;
        }
    }

    /// The kernel gives the lane up, and wants it anew. Nothing of it is committed any more.
    pub(crate) fn restart(&mut self, of: &Assignment) -> bool {
        self.enter(of, Stage::Restarting, |stage| stage != Stage::Unannounced)
    }

    /// Begins the lanes anew that were given up, and returns what they were.
    pub(crate) fn begin_anew(&mut self) -> Vec<Assignment> {
        let given_up = self.those(|lane| lane.stage == Stage::Restarting);
        for old in &given_up {
            let is_paused = self.lanes.get(&old.lane).is_some_and(|lane| lane.is_paused);
            self.assign(old.lane.clone());
            self.set_paused(&old.lane, is_paused);
        }
        given_up
    }

    /// The lane as it is owned now, if its records are to be delivered.
    pub(crate) fn running(&self, id: &LaneId) -> Option<Assignment> {
        let lane = self.lanes.get(id).filter(|lane| lane.is_running())?;
        Some(Assignment { lane: id.clone(), epoch: lane.epoch })
    }

    /// Those of these lanes of which something may run, so that they must be drained before they go.
    pub(crate) fn to_drain(&self, lanes: &[LaneId]) -> Vec<Assignment> {
        let mut live = self.those(|lane| !matches!(lane.stage, Stage::Unannounced | Stage::Restarting));
        live.retain(|assignment| lanes.contains(&assignment.lane));
        live
    }

    fn those(&self, are: impl Fn(&Lane) -> bool) -> Vec<Assignment> {
        let those = self.lanes.iter().filter(|(_, lane)| are(lane));
        those.map(|(id, lane)| Assignment { lane: id.clone(), epoch: lane.epoch }).collect()
    }

    fn enter(&mut self, of: &Assignment, next: Stage, from: impl Fn(Stage) -> bool) -> bool {
        let Some(lane) = self.of(of).filter(|lane| from(lane.stage)) else { return false };
        lane.stage = next;
        if next == Stage::Restarting {
            lane.position = None;
        }
        true
    }
}
