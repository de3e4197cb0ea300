//! The part of the truth that is about order: events of a key in a partition are handled one at a time, in delivered
//! order (D-6), and none after it is applied (D-1).

use crate::probe::{Kind, Place, Probe, number_of};
use crate::truth::{Run, Truth};

/// How the last call of an event went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Flies,
    Succeeded,
    /// The event goes on its way.
    Failed,
    /// The event stays where it is.
    Halted,
}

impl Truth {
    /// The outside world was called.
    pub fn call_started(&self, probe: &Probe) {
        let mut state = self.lock();
        let (run, this) = (run_of(probe), probe.id);
        if state.restores == 0 && state.lines.contains_key(&this) {
            state.fail("D-1", format!("event {} was called after it was applied", number_of(this)));
        }
        let before = state.runs.get(&run).map(|history| history.delivered.clone()).unwrap_or_default();
        for (offset, content) in before.into_iter().filter(|(_, content)| content.key == probe.content.key) {
            let (number, event) = (content.number, content.event());
            let call = state.calls.get(&(run, event)).map(|(call, _)| *call);
            if call == Some(Call::Flies) {
                let text = format!("event {} was called while {number} of its key runs", number_of(this));
                state.fail("D-6", text);
            }
            let place = Place { lane: run.lane, offset };
            let is_handled = matches!(call, Some(Call::Succeeded | Call::Failed));
            let moved_on = is_handled || event == this || state.was_settled(place, content);
            let needs_call = matches!(content.kind(), Kind::Plain | Kind::Poison);
            if offset < probe.place.offset && needs_call && !moved_on {
                let text = format!("event {} was called before {number}, which came first", number_of(this));
                state.fail("D-6", text);
            }
        }
        state.calls.insert((run, this), (Call::Flies, probe.place.offset));
    }

    pub fn call_ended(&self, probe: &Probe, call: Call) {
        let (mut state, this) = (self.lock(), (run_of(probe), probe.id));
        if call == Call::Failed {
            state.tried.insert(this);
        }
        state.calls.insert(this, (call, probe.place.offset));
    }

    /// The lines of a unit are about to be committed: nothing that came before them in their key may be left out that
    /// is only to be written.
    pub fn lines(&self, lines: &[Probe]) {
        let mut state = self.lock();
        for line in lines {
            let (run, this) = (run_of(line), line.place.offset);
            let Some(history) = state.runs.get(&run) else { continue };
            let left_out = history.delivered.iter().find(|(offset, content)| {
                let event = content.event();
                *offset < this
                    && content.key == line.content.key
                    && content.kind() == Kind::Plain
                    && state.calls.get(&(run, event)) == Some(&(Call::Succeeded, *offset))
                    && !state.tried.contains(&(run, event))
                    && !state.ever.contains(&event)
                    && lines.iter().all(|line| line.id != event)
            });
            if let Some((_, content)) = left_out.copied() {
                let text = format!("event {} was written before {}", line.content.number, content.number);
                state.fail("D-6", text);
            }
        }
    }
}

fn run_of(probe: &Probe) -> Run {
    Run { life: probe.life, lane: probe.place.lane, epoch: probe.epoch }
}
