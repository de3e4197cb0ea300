//! From the assignment of a lane to a member until it leaves it: what is delivered, committed and given away, as the
//! adapter does it. When, is decided elsewhere.

use std::time::Duration;

use core_delivery::ports::{Arrival, StreamEvent};
use core_delivery::record::{Committable, Offset, Record};

use crate::broker::{Lane, State, assignment, identity};
use crate::executor::Life;
use crate::probe::{LaneNo, Place, payload};
use crate::truth::Run;
use crate::world::Context;

/// How much of a lane may be delivered and not settled.
const IN_FLIGHT: usize = 8;

/// How long a lane that is revoked may take.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

impl State {
    /// The member takes the lane over, in a new epoch.
    pub fn assign(&mut self, context: &Context, life: Life, no: LaneNo) {
        let (log, Some(member)) = (&mut self.logs[no], self.members.get_mut(&life)) else { return };
        log.owner = Some(life);
        member.epochs += 1;
        let fresh = Lane {
            epoch: member.epochs,
            started: false,
            delivered: 0,
            position: None,
            unsettled: 0,
            draining: false,
            drain_limit: Duration::MAX,
            must_drain: false,
            released: false,
            restarting: false,
        };
        let arrival = Arrival {
            identity: identity(),
            committed: log.committed.map(Committable),
            first: Committable(0),
            end: Committable(log.end),
        };
        context.truth.assigned(Run { life, lane: no, epoch: member.epochs });
        member.lanes.insert(no, fresh);
        member.send(StreamEvent::Assigned(assignment(no, member.epochs), arrival));
    }

    pub fn revoke(&mut self, context: &Context, life: Life, no: LaneNo) {
        let Some(member) = self.members.get_mut(&life) else { return };
        if let Some(lane) = member.lanes.get_mut(&no).filter(|lane| !lane.draining) {
            (lane.draining, lane.must_drain) = (true, context.choices.are_over());
            lane.drain_limit = context.executor.elapsed() + DRAIN_LIMIT;
            context.executor.spawn(0, "drain limit", Box::pin(context.executor.sleep(DRAIN_LIMIT)));
            let revoked = StreamEvent::Revoked(assignment(no, lane.epoch));
            if !lane.restarting {
                member.send(revoked);
            }
        }
    }

    /// The lane leaves the member, drained or not. What it has settled is committed if it is still its own.
    pub fn hand_over(&mut self, life: Life, no: LaneNo) {
        self.commit(life, no);
        let Some(member) = self.members.get_mut(&life) else { return };
        if let Some(lane) = member.lanes.remove(&no) {
            member.send(StreamEvent::Lost(assignment(no, lane.epoch)));
        }
        if self.logs[no].owner == Some(life) {
            self.logs[no].owner = None;
        }
    }

    /// The member's client commits. Whether anything changed.
    pub fn commit(&mut self, life: Life, no: LaneNo) -> bool {
        let log = &mut self.logs[no];
        let lane = self.members.get_mut(&life).and_then(|member| member.lanes.get_mut(&no));
        let Some(lane) = lane.filter(|lane| log.owner == Some(life) && !lane.restarting) else { return false };
        // Where everything delivered is settled, the position follows over what is no record.
        let next = log.records.iter().find(|entry| entry.offset >= lane.delivered);
        let next = next.map_or(log.end, |entry| entry.offset);
        if lane.started && lane.position == Some(lane.delivered) && next > lane.delivered {
            (lane.position, lane.delivered) = (Some(next), next);
        }
        let changes = lane.position.is_some() && log.committed != lane.position;
        if changes {
            log.committed = lane.position;
        }
        changes
    }

    /// Delivers at most `max` records. Whether there were any.
    pub fn deliver(&mut self, context: &Context, life: Life, no: LaneNo, max: usize) -> bool {
        let Some(member) = self.members.get_mut(&life).filter(|member| !member.stopping) else { return false };
        let Some(lane) = member.lanes.get_mut(&no) else { return false };
        if !lane.started || lane.draining || lane.restarting {
            return false;
        }
        let (epoch, from) = (lane.epoch, lane.delivered);
        let new = self.logs[no].records.iter().filter(|entry| entry.offset >= from);
        let mut records = vec![];
        for entry in new.take(max.min(IN_FLIGHT.saturating_sub(lane.unsettled))) {
            let place = Place { lane: no, offset: entry.offset };
            context.truth.delivered(Run { life, lane: no, epoch }, entry.offset, entry.content);
            records.push(Record {
                offset: Offset(entry.offset),
                timestamp: Some(entry.timestamp),
                // What is partitioned by a key has it on the wire.
                key: Some(vec![b'a' + entry.content.key].into()),
                payload: Some(payload(entry.content, place, epoch, life).into()),
                headers: entry.headers.clone(),
                unreadable_headers: 0,
            });
            lane.delivered = entry.offset + 1;
            lane.unsettled += 1;
        }
        if records.is_empty() {
            return false;
        }
        context.choices.note(|| format!("lane {no} epoch {epoch} life {life}: {} records from {from}", records.len()));
        member.send(StreamEvent::Records(assignment(no, epoch), records));
        true
    }
}
