//! The search for what kills the process, as a lane carries it out: records are held back unread, and what the machine
//! names is read and run when nothing else runs beside it that must not. It decides nothing about the search.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_lock::{RwLockReadGuardArc, RwLockWriteGuardArc};
use futures::future::{BoxFuture, FutureExt};

use crate::event::{Event, UnixMillis};
use crate::ports::{Effect, ErrorClass, EventHandler, MarkAnswer, Search, UnitOfWorkFactory};
use crate::record::{Committable, Offset, Record};

use super::{Exit, LaneDriver};
use crate::delivery::batch::Outcome;
use crate::delivery::health::Place;
use crate::delivery::lane_mark;
use crate::delivery::search::{Held, Ran, Step, Treatment};
use crate::delivery::verdict::{Failure, Retry};
use crate::delivery::watermark::Ticket;

/// In this time whoever ends processes from outside would have ended this one. It is a witness for the suspect's part.
const REST: Duration = Duration::from_secs(60);

/// A record that is not read yet.
struct Unread {
    ticket: Ticket,
    record: Record,
    due: Option<UnixMillis>,
}

/// What the lane waits for. Each can be dropped: a mark that arrives late is refused by its revision.
pub(in crate::delivery) enum Turn {
    Due,
    Rested,
    Together(usize, RwLockReadGuardArc<()>),
    Alone(RwLockWriteGuardArc<()>),
    Began(MarkAnswer),
    Ended(MarkAnswer),
    Closed(MarkAnswer),
}

/// What is being run: its tickets, and how many records of it lead the lane.
struct Window {
    tickets: Vec<Ticket>,
    leading: usize,
    alone: Option<Alone>,
}

/// A record that runs alone.
struct Alone {
    offset: Offset,
    treatment: Treatment,
    /// Until it is read.
    unread: Option<Record>,
    ran: Ran,
    /// Nothing else runs in this process: from before the note that it starts until after the note that it has ended.
    solitude: Option<RwLockWriteGuardArc<()>>,
}

/// The search of one lane.
pub(super) struct Searching {
    search: Search,
    held: VecDeque<Unread>,
    window: Option<Window>,
    turn: Option<BoxFuture<'static, Turn>>,
}

impl Searching {
    pub(super) fn new(search: Search) -> Self {
        Self { search, held: VecDeque::new(), window: None, turn: None }
    }

    /// How far it has come, for the next owner.
    pub(super) fn search(&self) -> Search {
        self.search.clone()
    }

    fn alone(&mut self) -> Option<&mut Alone> {
        self.window.as_mut()?.alone.as_mut()
    }

    fn step(&mut self, position: Option<Committable>) -> Step {
        let held: Vec<Held<'_>> = self
            .held
            .iter()
            .map(|unread| Held { offset: unread.record.offset, key: unread.record.key.as_deref() })
            .collect();
        self.search.next(&held, position)
    }
}

impl<E, F, H> LaneDriver<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    /// Whether what waits in the lane may be run: in a search only what was read for it, and alone only in solitude.
    pub(super) fn may_run(&self) -> bool {
        let Some(searching) = &self.searching else { return true };
        let alone = searching.window.as_ref().and_then(|window| window.alone.as_ref());
        alone.is_none_or(|alone| alone.solitude.is_some())
    }

    /// Whether this lane waits until nothing runs any more, itself included.
    pub(super) fn waits_for_solitude(&self) -> bool {
        let searching = self.searching.as_ref().filter(|searching| searching.turn.is_some());
        searching
            .and_then(|searching| searching.window.as_ref()?.alone.as_ref())
            .is_some_and(|it| it.solitude.is_none())
    }

    /// Whether nothing else of the process may run beside the next unit, because this lane has seen to it.
    pub(super) fn is_in_solitude(&mut self) -> bool {
        self.searching.as_mut().and_then(Searching::alone).is_some_and(|alone| alone.solitude.is_some())
    }

    /// Keeps a record back until the search comes to it.
    pub(super) fn hold(&mut self, record: Record) -> Option<Record> {
        if self.marker.as_ref().is_some_and(|marker| marker.has_given_up(record.offset)) {
            let ticket = self.lane.hold(&record);
            let journey = self.lane.journey(&record);
            self.send_on(ticket, &record, journey, &given_up(killed("it was given up before")));
            return None;
        }
        let Some(searching) = &mut self.searching else { return Some(record) };
        let due = self.lane.due_of(&record, self.pipeline.runtime.now());
        let ticket = self.lane.hold(&record);
        searching.held.push_back(Unread { ticket, record, due });
        None
    }

    /// Begins what comes next, if nothing is waited for.
    pub(super) fn search_on(&mut self) {
        let Some(mut searching) = self.searching.take() else { return };
        if self.draining {
            // What runs goes on to its end, and nothing else begins.
            searching.turn = None;
            if self.unit.is_none() && self.stragglers.is_empty() {
                searching.alone().into_iter().for_each(|alone| alone.solitude = None);
            }
        } else if self.pause.is_none() && self.unit.is_none() && self.stragglers.is_empty() {
            self.go_on(&mut searching);
        }
        self.searching = Some(searching);
    }

    fn go_on(&mut self, searching: &mut Searching) {
        let is_resting = searching.window.is_none() && searching.turn.is_some();
        if let Some(window) = &mut searching.window {
            if searching.turn.is_some() {
                return;
            }
            if let Some(alone) = window.alone.as_mut().filter(|alone| alone.solitude.is_some()) {
                let ran = alone.ran;
                searching.search.ended(ran);
                let ended = self.write_down(Some(searching.search())).map(Turn::Ended);
                searching.turn = Some(ended.boxed());
                return;
            }
            if !window.tickets.iter().all(|ticket| self.lane.is_settled(*ticket)) {
                if window.alone.is_some() && self.lane.has_waiting() && !self.pipeline.health.is_halted() {
                    searching.turn = Some(self.solitude(self.lane.next_due()));
                }
                return;
            }
            if self.unstored() {
                return;
            }
            searching.search.passed(window.leading);
            searching.window = None;
        }
        if !is_resting {
            self.next_window(searching);
        } else if let Step::Alone(..) = searching.step(self.stored_of_log()) {
            // Records have come meanwhile, and one of them can be a witness.
            self.next_window(searching);
        }
    }

    /// What the store holds of this log.
    fn stored_of_log(&self) -> Option<Committable> {
        self.stored.filter(|_| !self.stored_is_void)
    }

    /// Whether the store has not passed the record. What is delivered again because the broker lags behind the store takes no
    /// room from what can have been in flight.
    fn is_ahead(&self, offset: Offset) -> bool {
        Some(offset.committable()) > self.stored_of_log()
    }

    fn next_window(&mut self, searching: &mut Searching) {
        let place = Place::of(&self.assignment, format!("search in {}", self.lane.id()));
        let step = searching.step(self.stored_of_log());
        match step {
            Step::AwaitRecords => return self.pipeline.health.clear(place),
            Step::Over => self.pipeline.health.clear(place),
            Step::Together(_) | Step::Alone(..) | Step::Rest => {
                self.pipeline.health.report(place, told(&searching.search, step));
            }
        }
        let turn = match step {
            Step::AwaitRecords => return,
            Step::Over => self.write_down(None).map(Turn::Closed).boxed(),
            Step::Together(count) => {
                let company = Arc::clone(&self.pipeline.company);
                async move { Turn::Together(count, company.read_arc().await) }.boxed()
            }
            Step::Rest => self.pipeline.runtime.sleep(REST).map(|()| Turn::Rested).boxed(),
            Step::Alone(index, treatment) => {
                let now = self.pipeline.runtime.now();
                let due = searching.held[index].due.filter(|due| *due > now);
                if let Some(due) = due {
                    let until = self.pipeline.runtime.sleep(due.since(now)).map(|()| Turn::Due).boxed();
                    searching.turn = Some(until);
                    return;
                }
                let Unread { ticket, record, .. } =
                    searching.held.remove(index).expect("the machine names what is held");
                let leading = usize::from(index == 0 && self.is_ahead(record.offset));
                let alone = Alone {
                    offset: record.offset,
                    treatment,
                    unread: Some(record),
                    ran: Ran::NotPerformed,
                    solitude: None,
                };
                searching.window = Some(Window { tickets: vec![ticket], leading, alone: Some(alone) });
                self.solitude(None)
            }
        };
        searching.turn = Some(turn);
    }

    /// Waits until something is due, and then until nothing else runs in this process.
    fn solitude(&self, due: Option<UnixMillis>) -> BoxFuture<'static, Turn> {
        let now = self.pipeline.runtime.now();
        if let Some(due) = due.filter(|due| *due > now) {
            return self.pipeline.runtime.sleep(due.since(now)).map(|()| Turn::Due).boxed();
        }
        let company = Arc::clone(&self.pipeline.company);
        async move { Turn::Alone(company.write_arc().await) }.boxed()
    }

    fn write_down(
        &mut self,
        search: Option<Search>,
    ) -> impl Future<Output = MarkAnswer> + Send + 'static + use<E, F, H> {
        let marker = self.marker.as_mut().expect("a lane that searches was taken");
        lane_mark::note(&self.pipeline, &self.assignment, marker, search)
    }

    /// Completes with what the search waits for. Cancel safe.
    pub(super) async fn turn(searching: &mut Option<Searching>) -> Turn {
        match searching.as_mut().and_then(|searching| searching.turn.as_mut()) {
            Some(turn) => turn.await,
            None => std::future::pending().await,
        }
    }

    /// What was waited for is there.
    pub(super) fn turned(&mut self, turn: Turn) -> Option<Exit> {
        let mut searching = self.searching.take().expect("only a search waits for its turn");
        searching.turn = None;
        if let Turn::Began(MarkAnswer::Superseded)
        | Turn::Ended(MarkAnswer::Superseded)
        | Turn::Closed(MarkAnswer::Superseded) = turn
        {
            tracing::warn!(lane = %self.lane.id(), "the lane's mark is another owner's, it starts anew");
            return Some(if self.draining { Exit::Released } else { Exit::Restart });
        }
        match turn {
            Turn::Due => {}
            Turn::Rested => searching.search.rested(),
            Turn::Together(count, company) => {
                let records: Vec<Unread> = searching.held.drain(..count).collect();
                let tickets = records.iter().map(|unread| unread.ticket).collect();
                let leading = records.iter().filter(|unread| self.is_ahead(unread.record.offset)).count();
                searching.window = Some(Window { tickets, leading, alone: None });
                records.into_iter().for_each(|Unread { ticket, record, .. }| self.read(ticket, record));
                drop(company);
            }
            Turn::Alone(solitude) => {
                let alone = searching.alone().expect("who waits for solitude has something to run");
                alone.solitude = Some(solitude);
                let offset = alone.offset;
                searching.search.begins(offset);
                let began = self.write_down(Some(searching.search())).map(Turn::Began);
                searching.turn = Some(began.boxed());
            }
            Turn::Began(_) => self.begin(&mut searching),
            Turn::Ended(_) => {
                let alone = searching.alone().expect("what has ended was run alone");
                alone.solitude = None;
                alone.ran = Ran::NotPerformed;
            }
            Turn::Closed(_) => {
                tracing::info!(lane = %self.lane.id(), "the search for what killed the process is over");
                searching.held.into_iter().for_each(|Unread { ticket, record, .. }| self.read(ticket, record));
                return None;
            }
        }
        self.searching = Some(searching);
        None
    }

    /// It is noted that the record starts: it is read, as far as its treatment wants it.
    fn begin(&mut self, searching: &mut Searching) {
        let ticket = searching.window.as_ref().expect("a window is open").tickets[0];
        let alone = searching.alone().expect("it is run alone");
        let treatment = alone.treatment;
        let Some(record) = alone.unread.take() else { return };
        match treatment {
            Treatment::Perform => self.read(ticket, record),
            Treatment::Inquire => {
                self.read(ticket, record);
                let _ = self.lane.strike_out(ticket);
            }
            Treatment::Reserve => {
                self.read(ticket, record);
                if let Some(event) = self.lane.strike_out(ticket) {
                    self.unrecorded.failures.insert(event, killed("it died as well that only asked what became of it"));
                }
            }
            Treatment::Unread => {
                let journey = self.lane.journey(&record);
                let failure = self.struck_out(record.offset, killed("nobody who reads it lives"));
                self.send_on(ticket, &record, journey, &failure);
            }
        }
    }

    fn read(&mut self, ticket: Ticket, record: Record) {
        let decoded = self.pipeline.decoder.decode(&record);
        let admitted = self.lane.judge(ticket, record, decoded, self.pipeline.runtime.now());
        self.admitted(admitted);
    }

    /// Notes whether what runs alone was performed.
    pub(super) fn ran<'a>(&mut self, outcomes: impl IntoIterator<Item = &'a Outcome>) {
        let performed = outcomes.into_iter().any(|it| matches!(it, Outcome::Applied | Outcome::Failed(_)));
        if let Some(alone) = self.searching.as_mut().and_then(Searching::alone)
            && performed
        {
            alone.ran = Ran::Performed;
        }
    }

    /// Tells that the record is struck out, and remembers it.
    pub(super) fn struck_out(&mut self, offset: Offset, failure: Failure) -> Failure {
        tracing::error!(lane = %self.lane.id(), offset = offset.0, class = %failure.class, error = failure.text,
            "every process died that ran this record alone, it becomes a dead letter");
        self.pipeline.metrics.struck_out.increment(1);
        self.marker.iter_mut().for_each(|marker| marker.give_up(offset));
        given_up(failure)
    }
}

/// What the letter of a record says that is given up, whatever its failure says of other tries.
fn given_up(failure: Failure) -> Failure {
    let text = format!("kills the process: every one died that ran it alone; {}", failure.text);
    let effect = if failure.effect == Effect::Never { Effect::Never } else { Effect::Unknown };
    Failure { text, retry: Retry::Never, effect, ..failure }
}

fn killed(how: &str) -> Failure {
    Failure { effect: Effect::Unknown, ..Failure::dead(ErrorClass::KILLS_THE_PROCESS, how) }
}

fn told(search: &Search, step: Step) -> String {
    let now = match (step, search.suspect) {
        (Step::Rest, Some(suspect)) => {
            format!("offset {} waits for another record of the partition, or a minute", suspect.offset.0)
        }
        (_, Some(suspect)) => {
            format!("offset {} is suspected, {} strikes; records run one at a time", suspect.offset.0, suspect.strikes)
        }
        _ => format!("at most {} records run at a time", search.window),
    };
    format!("looking for what killed the process: {now}")
}
