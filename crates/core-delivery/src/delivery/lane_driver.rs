//! Drives one assignment of one lane: feeds the machine, runs its units one after the other, sends its copies and
//! reports its progress. All decisions are the machine's and the batch's.

mod searching;
mod stored;
mod units;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{pin_mut, select_biased};

use crate::crash::{CrashPoint, reached};
use crate::event::{Event, EventId};
use crate::headers::Journey;
use crate::ports::{Arrival, ErrorClass, EventHandler, StoreError, StoredPosition, UnitOfWorkFactory};
use crate::record::{Assignment, Committable, Record};

use super::batch::{BatchReport, Unrecorded};
use super::clock::{is_from_the_future, until_clocks_agree};
use super::consumer::Pipeline;
use super::courier;
use super::health::Place;
use super::lane::{Admitted, Delivery, Lane};
use super::lane_mark::{Marker, release};
use super::lane_start::{start_lane, tell};
use super::perform::Performed;
use super::routing::dispatch;
use super::start::Alarm;
use super::verdict::{Failure, Verdict};
use super::watermark::{Settled, Ticket};
use searching::{Searching, Turn};

/// How long settled records may wait for a unit that stores their position along with something else.
const STORE_INTERVAL: Duration = Duration::from_millis(200);

/// How many events a unit takes for each call that may be in flight.
const CALLS_AHEAD: usize = 8;

/// How many events a lane tries at a time while failing is the rule.
const PROBE: usize = 10;

/// How often an idle lane looks whether the store still holds its position.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How soon a lane looks again whether it may work, while something halts all of them.
const HALTED_AGAIN: Duration = Duration::from_secs(1);

/// What the consumer tells a lane.
pub(super) enum Input {
    /// Records, in offset order.
    Records(Vec<Record>),
    /// Finish what runs, start nothing else.
    Drain,
}

/// How a lane ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// It was drained: nothing of it runs any more.
    Released,
    /// It was lost while it worked.
    Abandoned,
    /// What the store holds is not what it left there, or that is not known: it must start anew.
    Restart,
    /// A unit of it panicked.
    UnitPanicked,
}

/// The driver. A lane's inputs need no bound of their own: the stream delivers no more than its lane budget before
/// progress is reported.
pub(super) struct LaneDriver<E, F: UnitOfWorkFactory, H: EventHandler<E, F::Unit>>
where
    E: Event,
{
    pipeline: Arc<Pipeline<E, F, H>>,
    assignment: Assignment,
    arrival: Arrival,
    lane: Lane<E>,
    /// What the store holds as the lane's position.
    stored: Option<Committable>,
    /// What the store holds does not describe this log: the next position replaces it, even by a lower one.
    stored_is_void: bool,
    /// An alarm about the start that waits for the first record to show it.
    suspicion: Option<Alarm>,
    /// Runs while settled records wait for a unit that stores their position.
    store_soon: Option<BoxFuture<'static, ()>>,
    /// Completes when the stored position of an idle lane was looked at again.
    look: BoxFuture<'static, Look>,
    inputs: mpsc::UnboundedReceiver<Input>,
    unit: Option<oneshot::Receiver<UnitEnd<E, H::Receipt>>>,
    unrecorded: Unrecorded<H::Receipt>,
    stragglers: FuturesUnordered<BoxFuture<'static, (EventId, Performed<H::Receipt>)>>,
    copies: FuturesUnordered<BoxFuture<'static, Sent>>,
    pause: Option<BoxFuture<'static, ()>>,
    interruptions: u32,
    probes: usize,
    draining: bool,
    /// The lane's mark in the store, once it is taken.
    marker: Option<Marker>,
    /// Something killed an owner of the lane, and is looked for.
    searching: Option<Searching>,
}

/// What the store held when the lane looked, and what the lane had left there when it asked.
struct Look {
    left: Option<Committable>,
    found: Result<Vec<StoredPosition>, StoreError>,
}

/// What became of a copy.
enum Sent {
    /// It is acknowledged.
    Acknowledged(Ticket, Verdict),
    /// It was not sent: the clock by which its record was refused was wrong, and is right now.
    LookAgain(Ticket, Record),
}

type UnitEnd<E, R> = (BatchReport<E>, Unrecorded<R>);

enum Wake<E, R> {
    Input(Option<Input>),
    Unit(Result<UnitEnd<E, R>, oneshot::Canceled>),
    Straggled(EventId, Performed<R>),
    Sent(Sent),
    Looked(Look),
    Store,
    Search(Turn),
    Time,
}

impl<E, F, H> LaneDriver<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    pub(super) fn new(
        pipeline: Arc<Pipeline<E, F, H>>,
        assignment: Assignment,
        arrival: Arrival,
        lane: Lane<E>,
        inputs: mpsc::UnboundedReceiver<Input>,
    ) -> Self {
        Self {
            pipeline,
            assignment,
            arrival,
            lane,
            stored: None,
            stored_is_void: false,
            suspicion: None,
            store_soon: None,
            look: pending().boxed(),
            inputs,
            unit: None,
            unrecorded: Unrecorded::default(),
            stragglers: FuturesUnordered::new(),
            copies: FuturesUnordered::new(),
            pause: None,
            interruptions: 0,
            probes: 0,
            draining: false,
            marker: None,
            searching: None,
        }
    }

    /// Runs until the lane is released or lost. Dropping it abandons the lane; a running unit goes on to its end
    /// in its own task, and what it brings changes nothing here any more.
    pub(super) async fn run(mut self) -> Exit {
        let started = start_lane(&self.pipeline, &self.assignment, &self.arrival, &mut self.inputs).await;
        let exit = match started {
            Ok(started) => {
                (self.stored, self.stored_is_void) = (started.stored, started.stored_is_void);
                self.suspicion = started.suspicion;
                self.marker = Some(started.taken.marker);
                self.searching = started.taken.search.map(Searching::new);
                self.look_later();
                self.drive().await
            }
            Err(exit) => exit,
        };
        self.pipeline.health.clear(&self.assignment);
        self.pipeline.health.clear(Place::of(&self.assignment, format!("search in {}", self.lane.id())));
        // A lane that starts anew is taken by the same process, and a unit that panicked would panic again.
        if let (Exit::Released | Exit::Abandoned, Some(marker)) = (&exit, self.marker.take()) {
            release(&self.pipeline, marker, self.searching.take().map(|searching| searching.search())).await;
        }
        exit
    }

    async fn drive(&mut self) -> Exit {
        loop {
            self.start_unit();
            self.report();
            self.search_on();
            if self.draining && self.unit.is_none() && self.copies.is_empty() && self.stragglers.is_empty() {
                return Exit::Released;
            }
            match self.wake().await {
                Wake::Input(None) => return Exit::Abandoned,
                Wake::Input(Some(Input::Drain)) => {
                    if self.unit.is_some() {
                        reached(CrashPoint::DuringDrain);
                    }
                    self.draining = true;
                    self.pause = None;
                }
                Wake::Input(Some(Input::Records(records))) => {
                    records.into_iter().for_each(|record| self.admit(record));
                }
                Wake::Straggled(event, performed) => self.straggled(event, performed),
                Wake::Unit(Ok((report, mut unrecorded))) => {
                    self.unit = None;
                    for straggler in unrecorded.stragglers.drain(..) {
                        let event = straggler.event;
                        self.stragglers.push(straggler.outcome.map(move |performed| (event, performed)).boxed());
                    }
                    self.unrecorded.receipts.extend(unrecorded.receipts);
                    self.unrecorded.failures.extend(unrecorded.failures);
                    if let Some(exit) = self.unit_ended(report) {
                        return exit;
                    }
                }
                Wake::Unit(Err(oneshot::Canceled)) => return Exit::UnitPanicked,
                Wake::Sent(Sent::Acknowledged(ticket, verdict)) => {
                    self.settle(ticket, &verdict, Settled::Elsewhere);
                }
                Wake::Sent(Sent::LookAgain(ticket, record)) => {
                    let decoded = self.pipeline.decoder.decode(&record);
                    let admitted = self.lane.judge(ticket, record, decoded, self.pipeline.runtime.now());
                    self.admitted(admitted);
                }
                Wake::Looked(look) => {
                    if self.went_back(&look) {
                        return Exit::Restart;
                    }
                    self.look_later();
                }
                Wake::Store => self.store_now(),
                Wake::Search(turn) => {
                    if let Some(exit) = self.turned(turn) {
                        return exit;
                    }
                }
                Wake::Time => self.pause = None,
            }
        }
    }

    /// Waits for whatever happens first. Cancel safe: nothing is taken before it is returned.
    async fn wake(&mut self) -> Wake<E, H::Receipt> {
        // What is due and was not taken is held by a straggler, whose end wakes the lane.
        let now = self.pipeline.runtime.now();
        let due = self.lane.next_due().filter(|due| *due > now && !self.draining && self.pause.is_none());
        let mut due = due.map(|due| {
            let runtime = &self.pipeline.runtime;
            runtime.sleep(due.since(now))
        });
        let pause = &mut self.pause;
        let time = async {
            match pause.as_mut().or(due.as_mut()) {
                Some(sleep) => sleep.await,
                None => pending().await,
            }
        }
        .fuse();
        let store_soon = &mut self.store_soon;
        let store = async {
            match store_soon {
                Some(sleep) => sleep.await,
                None => pending().await,
            }
        }
        .fuse();
        let unit = &mut self.unit;
        let unit = async {
            match unit {
                Some(unit) => unit.await,
                None => pending().await,
            }
        }
        .fuse();
        let turn = Self::turn(&mut self.searching).fuse();
        pin_mut!(time, store, unit, turn);
        select_biased! {
            input = self.inputs.next() => Wake::Input(input),
            ended = unit => Wake::Unit(ended),
            (event, performed) = self.stragglers.select_next_some() => Wake::Straggled(event, performed),
            sent = self.copies.select_next_some() => Wake::Sent(sent),
            look = (&mut self.look).fuse() => Wake::Looked(look),
            () = store => Wake::Store,
            turn = turn => Wake::Search(turn),
            () = time => Wake::Time,
        }
    }

    fn admit(&mut self, record: Record) {
        if let (Some(alarm), Some(stored)) = (self.suspicion.take(), self.stored)
            && alarm.is_shown_by(record.offset)
        {
            tell(&self.pipeline, &self.assignment, alarm, stored);
        }
        let Some(record) = self.hold(record) else { return };
        let decoded = self.pipeline.decoder.decode(&record);
        let admitted = self.lane.admit(record, decoded, self.pipeline.runtime.now());
        self.admitted(admitted);
    }

    fn admitted(&mut self, admitted: Admitted) {
        match admitted {
            Admitted::Waiting => {}
            Admitted::Ignored(ticket, reason) => {
                self.settle(ticket, &Verdict::Ignored(reason), Settled::Elsewhere);
            }
            Admitted::Refused(ticket, record, failure) => {
                tracing::warn!(lane = %self.lane.id(), offset = record.offset.0, class = %failure.class,
                    error = failure.text, "record refused");
                let journey = self.lane.journey(&record);
                self.send_on(ticket, &record, journey, &failure);
            }
        }
    }

    fn failed(&mut self, delivery: &Delivery<E>, failure: &Failure) {
        let struck_out = delivery.history.struck_out.then(|| self.struck_out(delivery.record.offset, failure.clone()));
        let failure = struck_out.as_ref().unwrap_or(failure);
        tracing::warn!(event_id = %delivery.event.id(), lane = %self.lane.id(), offset = delivery.record.offset.0,
            class = %failure.class, error = failure.text, "event failed");
        let mut journey = self.lane.journey(&delivery.record);
        journey.in_doubt |= self.pipeline.batch.doubts.take(delivery.event.id());
        self.send_on(delivery.ticket, &delivery.record, journey, failure);
    }

    /// Sends the copy of a failed record; its acknowledgement will settle the ticket.
    fn send_on(&mut self, ticket: Ticket, record: &Record, journey: Journey, failure: &Failure) {
        let pipeline = Arc::clone(&self.pipeline);
        let now = pipeline.runtime.now();
        let sent = dispatch(&pipeline.settings.topology, self.lane.stage(), record, journey, failure, now);
        let judged_by_the_clock = (failure.class == ErrorClass::FROM_THE_FUTURE).then(|| record.clone());
        let from = self.assignment.clone();
        self.copies.push(
            async move {
                if let Some(record) = judged_by_the_clock {
                    let agreed = until_clocks_agree(&pipeline, &from).await;
                    // It may have been set right since it judged: only the one that agrees counts.
                    if !agreed || !is_from_the_future(&pipeline, &record) {
                        return Sent::LookAgain(ticket, record);
                    }
                }
                let Pipeline { publisher, runtime, health, metrics, .. } = &*pipeline;
                courier::deliver(&**publisher, &**runtime, health, metrics, &from, sent.copy).await;
                reached(CrashPoint::CopyAcknowledged);
                Sent::Acknowledged(ticket, sent.verdict)
            }
            .boxed(),
        );
    }

    fn settle(&mut self, ticket: Ticket, verdict: &Verdict, settled: Settled) {
        self.pipeline.metrics.count(verdict);
        self.lane.settle(ticket, settled);
        reached(CrashPoint::AfterSettle);
    }
}
