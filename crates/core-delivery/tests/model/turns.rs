//! What the broker does next: what is due, or something harmful that a schedule wants.

use crate::broker::{Broker, State};
use crate::executor::Life;
use crate::probe::{CONSUMED, LaneNo};
use crate::world::Context;

impl Broker {
    /// Does the first thing that is due. False if nothing is.
    pub fn turn(&self) -> bool {
        let mut state = self.lock();
        let lanes = state.lanes();
        for (life, no) in &lanes {
            if state.settle_ownership(&self.context, *life, *no) || state.deliver(&self.context, *life, *no, 3) {
                return true;
            }
        }
        if state.close_streams() || state.assign_unowned(&self.context) {
            return true;
        }
        lanes.iter().any(|(life, no)| state.commit(*life, *no))
    }

    /// Delivers or commits something, somewhere.
    pub fn work(&self) {
        let choices = &self.context.choices;
        let mut state = self.lock();
        let lanes = state.lanes();
        if let Some((life, no)) = lanes.get(choices.pick(lanes.len())).copied() {
            match choices.pick(4) {
                0 => drop(state.deliver(&self.context, life, no, 8)),
                1 => drop(state.deliver(&self.context, life, no, 1)),
                2 => drop(state.commit(life, no)),
                _ => drop(state.settle_ownership(&self.context, life, no)),
            }
        }
    }

    /// Takes or gives lanes.
    pub fn rebalance(&self) {
        let choices = &self.context.choices;
        let mut state = self.lock();
        let lanes = state.lanes();
        let Some((life, no)) = lanes.get(choices.pick(lanes.len())).copied() else { return };
        match choices.pick(6) {
            0 => drop(state.assign_unowned(&self.context)),
            1 => {
                choices.note(|| format!("lane {no} of life {life} is revoked"));
                state.revoke(&self.context, life, no);
            }
            2 => {
                choices.note(|| format!("lane {no} of life {life} is taken away, drained or not"));
                state.hand_over(life, no);
            }
            3 => {
                choices.note(|| format!("lane {no} of life {life} is lost, which it does not know yet"));
                if state.logs[no].owner == Some(life) {
                    state.logs[no].owner = None;
                }
            }
            4 => {
                choices.note(|| format!("lane {no} of life {life} is reset by its broker"));
                state.restart(&self.context, life, no);
            }
            _ => {
                choices.note(|| format!("life {life} leaves the group and comes back"));
                (0..CONSUMED).for_each(|no| state.hand_over(life, no));
            }
        }
    }

    /// The group's offset of a lane that nobody owns is moved back by an operator, or forgotten.
    pub fn reset(&self) {
        let choices = &self.context.choices;
        let mut state = self.lock();
        let log = &mut state.logs[choices.pick(CONSUMED)];
        if let (None, Some(committed)) = (log.owner, log.committed) {
            let forgets = choices.pick(2) == 1;
            log.committed = if forgets { None } else { Some(choices.pick(committed as usize + 1) as i64) };
            choices.note(|| format!("the group's offset {committed} becomes {:?}", log.committed));
        }
    }
}

impl State {
    fn lanes(&self) -> Vec<(Life, LaneNo)> {
        self.members.iter().flat_map(|(life, member)| member.lanes.keys().map(|no| (*life, *no))).collect()
    }

    /// What the adapter does by itself: notices that a lane is another's, gives away what is drained, begins anew what
    /// the kernel gave up, drains what is to be stopped.
    fn settle_ownership(&mut self, context: &Context, life: Life, no: LaneNo) -> bool {
        let is_owner = self.logs[no].owner == Some(life);
        let Some(member) = self.members.get(&life) else { return false };
        let Some(lane) = member.lanes.get(&no) else { return false };
        let is_drained = lane.released || lane.restarting;
        let is_late = context.executor.elapsed() >= lane.drain_limit;
        if is_owner && is_late && !is_drained && lane.must_drain {
            context.truth.report("rest", format!("lane {no} of process {life} is not drained within its limit"));
        }
        if !is_owner || lane.draining && (is_drained || is_late) {
            self.hand_over(life, no);
        } else if lane.restarting {
            self.restart(context, life, no);
        } else if member.stopping && !lane.draining {
            self.revoke(context, life, no);
        } else {
            return false;
        }
        true
    }

    fn restart(&mut self, context: &Context, life: Life, no: LaneNo) {
        let Some(lane) = self.members.get_mut(&life).and_then(|member| member.lanes.get_mut(&no)) else { return };
        if lane.draining {
            return;
        }
        lane.restarting = true;
        let is_owner = self.logs[no].owner == Some(life);
        self.hand_over(life, no);
        if is_owner && !self.members[&life].stopping {
            self.assign(context, life, no);
        }
    }

    fn close_streams(&mut self) -> bool {
        let drained = self.members.values_mut().filter(|member| member.stopping && member.lanes.is_empty());
        let closed = drained.filter_map(|member| member.events.take());
        closed.count() > 0
    }

    fn assign_unowned(&mut self, context: &Context) -> bool {
        let Some(no) = (0..CONSUMED).find(|no| self.logs[*no].owner.is_none()) else { return false };
        // Whoever has the fewest; not one that has not noticed yet that it lost this lane.
        let free = self.members.iter().filter(|(_, member)| !member.stopping && !member.lanes.contains_key(&no));
        let taker = free.min_by_key(|(_, member)| member.lanes.len()).map(|(life, _)| *life);
        taker.inspect(|life| self.assign(context, *life, no)).is_some()
    }
}
