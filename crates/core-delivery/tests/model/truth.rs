//! What really happened, and whether it was allowed. It sees what the broker delivered and was told, what the store
//! committed, what was acknowledged and which calls were made, and asks the kernel nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_delivery::event::EventId;

use crate::executor::Life;
use crate::order::Call;
use crate::probe::{CONSUMED, Content, Kind, LANES, LaneNo, Place, lane_id, number_of};

/// The first rule that was broken.
#[derive(Debug, Clone)]
pub struct Broken {
    pub rule: &'static str,
    pub text: String,
}

/// One assignment of one lane to one life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    pub life: Life,
    pub lane: LaneNo,
    pub epoch: u64,
}

#[derive(Clone, Default)]
pub struct Truth(Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    logs: [Vec<(i64, Content)>; LANES],
    /// The committed business changes, and all that ever were: a database that goes back forgets some.
    pub lines: BTreeMap<EventId, u32>,
    pub ever: HashSet<EventId>,
    stored: [Option<i64>; LANES],
    pub restores: u32,
    acknowledged: HashSet<Place>,
    pub runs: HashMap<Run, History>,
    /// The last call of each event, and for which of its records it was made.
    pub calls: HashMap<(Run, EventId), (Call, i64)>,
    /// The events that were overtaken by right: order does not hold over tries.
    pub tried: HashSet<(Run, EventId)>,
    dead: HashSet<Life>,
    dying: Vec<Life>,
    may_fail: HashSet<Life>,
    in_doubt: HashSet<EventId>,
    broken: Option<Broken>,
}

#[derive(Default)]
pub struct History {
    start: i64,
    restores: u32,
    pub delivered: Vec<(i64, Content)>,
    reported: Option<i64>,
}

impl Truth {
    pub fn broken(&self) -> Option<Broken> {
        self.lock().broken.clone()
    }

    pub fn report(&self, rule: &'static str, text: String) {
        self.lock().fail(rule, text);
    }

    /// The process is gone.
    pub fn dies(&self, life: Life) {
        self.lock().dead.insert(life);
    }

    /// The process is about to end, because of what it handles.
    pub fn kills(&self, life: Life) {
        self.lock().dying.push(life);
    }

    /// A process that is about to end.
    pub fn take_dying(&self) -> Option<Life> {
        self.lock().dying.pop()
    }

    pub fn lives(&self, life: Life) -> bool {
        !self.lock().dead.contains(&life)
    }

    /// A panic was put where it ends the process.
    pub fn may_fail(&self, life: Life) {
        self.lock().may_fail.insert(life);
    }

    /// A process ended by itself.
    pub fn ended(&self, life: Life, how: Result<(), String>) {
        let mut state = self.lock();
        if let Err(error) = how
            && !state.may_fail.contains(&life)
        {
            state.fail("panics", format!("process {life} ended: {error}"));
        }
    }

    /// A call of the event had an effect, perhaps.
    pub fn in_doubt(&self, event: EventId) {
        self.lock().in_doubt.insert(event);
    }

    /// A record was written into a log.
    pub fn written(&self, place: Place, content: Content) {
        self.lock().logs[place.lane].push((place.offset, content));
    }

    /// The publisher was told that the copy of the record at this place is safe.
    pub fn acknowledged(&self, place: Place) {
        self.lock().acknowledged.insert(place);
    }

    /// The broker gave a lane to a process.
    pub fn assigned(&self, run: Run) {
        let mut state = self.lock();
        let history = History { restores: state.restores, ..History::default() };
        state.runs.insert(run, history);
    }

    /// The kernel said where it starts.
    pub fn started(&self, run: Run, start: i64) {
        self.lock().runs.entry(run).or_default().start = start;
    }

    pub fn delivered(&self, run: Run, offset: i64, content: Content) {
        self.lock().runs.entry(run).or_default().delivered.push((offset, content));
    }

    /// The kernel said how far it is.
    pub fn progress(&self, run: Run, position: i64) {
        let mut state = self.lock();
        let history = state.runs.remove(&run).unwrap_or_default();
        let lane = lane_id(run.lane);
        let last = history.delivered.last().map_or(history.start, |(offset, _)| offset + 1);
        if position > last {
            state.fail("D-3", format!("{lane}: {position} was reported, {last} comes after the last delivered record"));
        }
        if history.reported.is_some_and(|reported| position < reported) {
            state.fail("D-4", format!("{lane}: {position} was reported after {:?}", history.reported));
        }
        let same_store = history.restores == state.restores;
        let passed = history.reported.unwrap_or(i64::MIN)..position;
        let open =
            state.logs[run.lane].iter().filter(|(offset, _)| passed.contains(offset)).find(|(offset, content)| {
                let place = Place { lane: run.lane, offset: *offset };
                let settled_now = state.settled(place, *content);
                // After the database went back the kernel may still report what was true before.
                !settled_now && (same_store && *offset >= history.start || !state.was_settled(place, *content))
            });
        if let Some((offset, content)) = open.copied() {
            let delivered = history.delivered.iter().any(|(delivered, _)| *delivered == offset);
            let rule = if delivered { "D-3" } else { "D-2" };
            state.fail(rule, format!("{lane}: {position} was reported, offset {offset} ({content:?}) has no verdict"));
        }
        if same_store && state.stored[run.lane] < Some(position) {
            let stored = state.stored[run.lane];
            state.fail("D-11", format!("{lane}: {position} was reported, the store holds {stored:?}"));
        }
        let reported = Some(position).max(history.reported);
        state.runs.insert(run, History { reported, ..history });
    }

    /// A unit was committed.
    pub fn committed(&self, claims: &[EventId], lines: &[EventId], position: Option<(LaneNo, i64)>) {
        let mut state = self.lock();
        for event in claims.iter().filter(|event| !lines.contains(event)) {
            state.fail("D-1", format!("event {} was claimed and nothing was changed", number_of(*event)));
        }
        for event in lines {
            let number = number_of(*event);
            if !claims.contains(event) {
                state.fail("D-1", format!("event {number} was changed without a claim"));
            }
            let count = state.lines.entry(*event).or_default();
            *count += 1;
            if *count > 1 {
                state.fail("D-1", format!("event {number} was applied twice"));
            }
            state.ever.insert(*event);
        }
        if let Some((lane, position)) = position {
            state.stored[lane] = Some(position);
            let open = state.first_open(lane);
            if let Some((offset, content)) = open.filter(|(offset, _)| *offset < position) {
                let lane = lane_id(lane);
                let text =
                    format!("{lane}: position {position} was stored, offset {offset} ({content:?}) has no verdict");
                state.fail("D-11", text);
            }
        }
    }

    /// The database went back.
    pub fn restored(&self, lines: &BTreeMap<EventId, u32>, stored: [Option<i64>; LANES]) {
        let mut state = self.lock();
        state.restores += 1;
        (state.lines, state.stored) = (lines.clone(), stored);
    }

    /// What was delivered and has not come to anything yet, and what the outcome would be called if it stays so.
    pub fn open(&self) -> Option<String> {
        let state = self.lock();
        (0..CONSUMED).find_map(|lane| {
            let (offset, content) = state.first_open(lane)?;
            Some(format!("{} offset {offset} ({content:?}) has no verdict", lane_id(lane)))
        })
    }

    /// An event that is neither applied nor among the dead letters nor to be ignored.
    pub fn lost(&self) -> Option<String> {
        let state = self.lock();
        let letters: HashSet<u32> = state.logs[CONSUMED..].iter().flatten().map(|(_, letter)| letter.number).collect();
        let produced = state.logs.iter().flatten().map(|(_, content)| content);
        let lost = produced
            .filter(|content| content.kind() != Kind::Foreign)
            .find(|content| !letters.contains(&content.number) && !state.lines.contains_key(&content.event()));
        lost.map(|content| format!("{content:?} is neither applied nor a dead letter"))
    }

    /// Something that is reserved for good although the event had no effect. What a poisoned event had reserved stays: it
    /// was performed and cannot be written. A database that went back may bring back what was taken back.
    pub fn leaked(&self, reserved: &BTreeSet<EventId>) -> Option<String> {
        let state = self.lock();
        let poison: HashSet<EventId> = state
            .logs
            .iter()
            .flatten()
            .filter(|(_, content)| content.kind() == Kind::Poison)
            .map(|(_, content)| content.event())
            .collect();
        let leaked = reserved.iter().filter(|_| state.restores == 0);
        let mut leaked = leaked.filter(|event| !state.in_doubt.contains(event) && !poison.contains(event));
        leaked.next().map(|event| format!("what event {} had reserved is never taken back", number_of(*event)))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub fn fail(&mut self, rule: &'static str, text: String) {
        self.broken.get_or_insert(Broken { rule, text });
    }

    /// Whether the record has a verdict: its event is applied, its copy is acknowledged, or it is not for us.
    fn settled(&self, place: Place, content: Content) -> bool {
        content.kind() == Kind::Foreign
            || self.acknowledged.contains(&place)
            || self.lines.contains_key(&content.event())
    }

    /// The same, if the database had never gone back.
    pub fn was_settled(&self, place: Place, content: Content) -> bool {
        self.settled(place, content) || self.ever.contains(&content.event())
    }

    fn first_open(&self, lane: LaneNo) -> Option<(i64, Content)> {
        let open = |(offset, content): &&(i64, Content)| !self.settled(Place { lane, offset: *offset }, *content);
        self.logs[lane].iter().find(open).copied()
    }
}
