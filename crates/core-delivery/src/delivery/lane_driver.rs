//! Drives one assignment of one lane: feeds the machine, runs its units one after the other, sends its copies and
//! reports its progress. All decisions are the machine's and the batch's.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{pin_mut, select_biased};

use crate::event::{Event, EventId};
use crate::ports::{Arrival, ErrorClass, EventHandler, UnitOfWorkFactory};
use crate::record::{Assignment, Committable, Record};

use super::backoff::{Backoff, jitter};
use super::batch::{BatchReport, Interruption, Outcome, PositionPlan, Unrecorded};
use super::clock::clock_agrees;
use super::consumer::Pipeline;
use super::courier;
use super::lane::{Admitted, Delivery, Lane};
use super::lane_start::start_lane;
use super::perform::Performed;
use super::routing::dispatch;
use super::storm::Call;
use super::verdict::{Failure, Verdict};
use super::watermark::Ticket;

/// How long settled records may wait for a unit that stores their position along with something else.
const STORE_INTERVAL: Duration = Duration::from_millis(200);

/// How many events a lane tries at a time while failing is the rule.
const PROBE: usize = 10;

/// How soon a lane looks again whether it may work, while something halts all of them.
const HALTED_AGAIN: Duration = Duration::from_secs(1);

/// How soon a record from the future is looked at again while the clocks disagree.
const CLOCK_AGAIN: Duration = Duration::from_secs(5);

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
    /// Runs while settled records wait for a unit that stores their position.
    store_soon: Option<BoxFuture<'static, ()>>,
    inputs: mpsc::UnboundedReceiver<Input>,
    unit: Option<oneshot::Receiver<UnitEnd<E, H::Receipt>>>,
    unrecorded: Unrecorded<H::Receipt>,
    stragglers: FuturesUnordered<BoxFuture<'static, (EventId, Performed<H::Receipt>)>>,
    copies: FuturesUnordered<BoxFuture<'static, Sent>>,
    pause: Option<BoxFuture<'static, ()>>,
    interruptions: u32,
    draining: bool,
}

/// What became of a copy.
enum Sent {
    /// It is acknowledged.
    Acknowledged(Ticket, Verdict),
    /// It was not sent: this machine's clock and the store's disagree, so nobody can say what lies in the future.
    ClockDisagrees,
}

type UnitEnd<E, R> = (BatchReport<E>, Unrecorded<R>);

enum Wake<E, R> {
    Input(Option<Input>),
    Unit(Result<UnitEnd<E, R>, oneshot::Canceled>),
    Straggled(EventId, Performed<R>),
    Sent(Sent),
    Store,
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
            store_soon: None,
            inputs,
            unit: None,
            unrecorded: Unrecorded::default(),
            stragglers: FuturesUnordered::new(),
            copies: FuturesUnordered::new(),
            pause: None,
            interruptions: 0,
            draining: false,
        }
    }

    /// Runs until the lane is released or lost. Dropping it abandons the lane; a running unit goes on to its end
    /// in its own task, and what it brings changes nothing here any more.
    pub(super) async fn run(mut self) -> Exit {
        let started = start_lane(&self.pipeline, &self.assignment, &self.arrival, &mut self.inputs).await;
        let exit = match started {
            Ok(started) => {
                (self.stored, self.stored_is_void) = (started.stored, started.stored_is_void);
                self.drive().await
            }
            Err(exit) => exit,
        };
        self.pipeline.health.clear(&self.lane.id().to_string());
        exit
    }

    async fn drive(&mut self) -> Exit {
        loop {
            self.start_unit();
            self.report();
            if self.draining && self.unit.is_none() && self.copies.is_empty() && self.stragglers.is_empty() {
                return Exit::Released;
            }
            match self.wake().await {
                Wake::Input(None) => return Exit::Abandoned,
                Wake::Input(Some(Input::Drain)) => self.draining = true,
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
                    if let Some(exit) = self.unit_ended(report) {
                        return exit;
                    }
                }
                Wake::Unit(Err(oneshot::Canceled)) => return Exit::UnitPanicked,
                Wake::Sent(Sent::Acknowledged(ticket, verdict)) => self.settle(ticket, &verdict),
                // The records are looked at again, by a clock that is believed.
                Wake::Sent(Sent::ClockDisagrees) => return Exit::Restart,
                Wake::Store => self.store_now(),
                Wake::Time => self.pause = None,
            }
        }
    }

    /// Reports what is settled and stored: Kafka's offset never passes the position in the store (D-11).
    fn report(&mut self) {
        let Some(stored) = self.stored else {
            return;
        };
        if let Some(progress) = self.lane.report(stored) {
            self.pipeline.control.progress(&self.assignment, progress);
        }
    }

    /// Waits for whatever happens first. Cancel safe: nothing is taken before it is returned.
    async fn wake(&mut self) -> Wake<E, H::Receipt> {
        let due = self.lane.next_due().filter(|_| !self.draining && self.pause.is_none());
        let mut due = due.map(|due| {
            let runtime = &self.pipeline.runtime;
            runtime.sleep(due.since(runtime.now()))
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
        pin_mut!(time, store, unit);
        select_biased! {
            input = self.inputs.next() => Wake::Input(input),
            ended = unit => Wake::Unit(ended),
            (event, performed) = self.stragglers.select_next_some() => Wake::Straggled(event, performed),
            sent = self.copies.select_next_some() => Wake::Sent(sent),
            () = store => Wake::Store,
            () = time => Wake::Time,
        }
    }

    /// Starts the next unit if none runs and something may be tried, or if the last settled records of a lane that ends
    /// have no stored position yet.
    fn start_unit(&mut self) {
        if self.pause.is_some() || self.unit.is_some() {
            return;
        }
        if self.draining {
            return self.start_last_unit();
        }
        if self.pipeline.health.is_halted() {
            self.pause = Some(self.pipeline.runtime.sleep(HALTED_AGAIN));
            return;
        }
        let rages = self.pipeline.storm().rages();
        let max = if rages { PROBE } else { self.pipeline.settings.batch_max };
        let batch = self.lane.next_batch(self.pipeline.runtime.now(), max);
        if !batch.is_empty() {
            self.run_unit(batch);
        } else if self.unstored() && self.store_soon.is_none() {
            self.store_soon = Some(self.pipeline.runtime.sleep(STORE_INTERVAL));
        }
    }

    /// What a lane that ends still owes the store: the receipts of calls that outlived their units, and the position of
    /// records that got their verdict outside of a unit.
    fn start_last_unit(&mut self) {
        let receipts = &self.unrecorded.receipts;
        let batch = self.lane.batch_of(|event| receipts.contains_key(&event));
        if !batch.is_empty() || self.copies.is_empty() && self.stragglers.is_empty() && self.unstored() {
            self.run_unit(batch);
        }
    }

    /// Whether records are settled whose position the store does not hold: those that got their verdict outside of a
    /// unit.
    fn unstored(&self) -> bool {
        self.lane.position().is_some() && (self.lane.position() > self.stored || self.stored_is_void)
    }

    fn store_now(&mut self) {
        self.store_soon = None;
        if self.unit.is_none() && self.pause.is_none() && self.unstored() {
            self.run_unit(vec![]);
        }
    }

    /// Runs a unit in a task of its own, which nothing here can cancel.
    fn run_unit(&mut self, batch: Vec<Delivery<E>>) {
        let (told, ended) = oneshot::channel();
        let pipeline = Arc::clone(&self.pipeline);
        let mut unrecorded = std::mem::take(&mut self.unrecorded);
        let plan = PositionPlan {
            lane: self.assignment.lane.clone(),
            identity: self.arrival.identity.clone(),
            from: self.stored,
            may_lower: self.stored_is_void,
            outlook: self.lane.outlook(),
        };
        let unit = async move {
            let started = pipeline.runtime.now();
            pipeline.metrics.unit_events.record(batch.len() as f64);
            let report = pipeline.batch.run(batch, &mut unrecorded, Some(&plan)).await;
            pipeline.metrics.unit_seconds.record(pipeline.runtime.now().since(started).as_secs_f64());
            // The lane may be gone: then nobody waits for the report, and the next owner decides by the claims.
            drop(told.send((report, unrecorded)));
        };
        self.pipeline.runtime.spawn("unit of work", unit.boxed());
        self.unit = Some(ended);
    }

    fn admit(&mut self, record: Record) {
        let decoded = self.pipeline.decoder.decode(&record);
        match self.lane.admit(record, decoded, self.pipeline.runtime.now()) {
            Admitted::Waiting => {}
            Admitted::Ignored(ticket, reason) => self.settle(ticket, &Verdict::Ignored(reason)),
            Admitted::Refused(ticket, record, failure) => {
                tracing::warn!(lane = %self.lane.id(), offset = record.offset.0, class = %failure.class,
                    error = failure.text, "record refused");
                self.send_on(ticket, &record, &failure);
            }
        }
    }

    fn unit_ended(&mut self, report: BatchReport<E>) -> Option<Exit> {
        let mut postponed = vec![];
        if report.stored.is_some() {
            (self.stored, self.stored_is_void) = (report.stored, false);
        }
        let rages = self.note_calls(report.outcomes.iter().map(|(_, outcome)| outcome));
        for (delivery, outcome) in report.outcomes {
            match outcome {
                Outcome::Failed(_) if rages => postponed.push(delivery),
                Outcome::Applied => {
                    tracing::debug!(event_id = %delivery.event.id(), lane = %self.lane.id(),
                        offset = delivery.record.offset.0, "event applied");
                    self.settle(delivery.ticket, &Verdict::Applied);
                }
                Outcome::Duplicate => {
                    tracing::info!(event_id = %delivery.event.id(), lane = %self.lane.id(),
                        offset = delivery.record.offset.0, "duplicate skipped");
                    self.settle(delivery.ticket, &Verdict::Duplicate);
                }
                Outcome::Failed(failure) => self.failed(&delivery, &failure),
                Outcome::Postponed => postponed.push(delivery),
                Outcome::Straggling => {
                    tracing::debug!(event_id = %delivery.event.id(), lane = %self.lane.id(), "call outlives its unit");
                    self.lane.straggles(delivery);
                }
            }
        }
        self.lane.unit_ended(postponed);
        match report.interruption.or(rages.then_some(Interruption::Storm)) {
            None => self.undisturbed(),
            Some(interruption) => {
                self.interrupted(&interruption);
                if interruption.position_is_unknown() {
                    // A lane that ends anyway is found out about by its next owner.
                    return Some(if self.draining { Exit::Released } else { Exit::Restart });
                }
                if self.draining {
                    // What is not stored now is delivered again to the next owner.
                    return self.copies.is_empty().then_some(Exit::Released);
                }
            }
        }
        None
    }

    /// Counts how the calls of a unit went, and tells whether failing has become the rule. A refusal of the store or of
    /// the application's tables counts as well.
    fn note_calls<'a>(&self, outcomes: impl Iterator<Item = &'a Outcome>) -> bool {
        self.note(outcomes.filter_map(|outcome| match outcome {
            Outcome::Applied => Some(Call::Succeeded),
            Outcome::Failed(_) => Some(Call::Failed),
            Outcome::Duplicate | Outcome::Postponed | Outcome::Straggling => None,
        }))
    }

    fn note(&self, calls: impl IntoIterator<Item = Call>) -> bool {
        let now = self.pipeline.runtime.now();
        let mut storm = self.pipeline.storm();
        calls.into_iter().for_each(|call| storm.note(call, now));
        storm.rages()
    }

    /// A call that outlived its unit has ended: its receipt is recorded by the next unit, under a claim of its own.
    fn straggled(&mut self, event: EventId, performed: Performed<H::Receipt>) {
        let Some(delivery) = self.lane.straggler_ended(event) else {
            return;
        };
        let rages = self.note(match &performed {
            Performed::Done(_) => Some(Call::Succeeded),
            Performed::Failed(_) => Some(Call::Failed),
            Performed::Halted(_) => None,
        });
        match performed {
            Performed::Failed(_) if rages => self.lane.put_back(delivery),
            Performed::Done(receipt) => {
                self.unrecorded.receipts.insert(event, receipt);
                self.lane.put_back(delivery);
            }
            Performed::Failed(failure) => self.failed(&delivery, &failure),
            Performed::Halted(reason) => {
                self.lane.put_back(delivery);
                if let Some(reason) = reason {
                    self.interrupted(&Interruption::Handler(reason));
                }
            }
        }
    }

    fn failed(&mut self, delivery: &Delivery<E>, failure: &Failure) {
        tracing::warn!(event_id = %delivery.event.id(), lane = %self.lane.id(), offset = delivery.record.offset.0,
            class = %failure.class, error = failure.text, "event failed");
        self.send_on(delivery.ticket, &delivery.record, failure);
    }

    /// Sends the copy of a failed record; its acknowledgement will settle the ticket.
    fn send_on(&mut self, ticket: Ticket, record: &Record, failure: &Failure) {
        let pipeline = Arc::clone(&self.pipeline);
        let journey = self.lane.journey(record);
        let now = pipeline.runtime.now();
        let sent = dispatch(&pipeline.settings.topology, self.lane.stage(), record, journey, failure, now);
        let depends_on_the_clock = failure.class == ErrorClass::FROM_THE_FUTURE;
        self.copies.push(
            async move {
                if depends_on_the_clock && !clock_agrees(&pipeline).await {
                    pipeline.runtime.sleep(CLOCK_AGAIN).await;
                    return Sent::ClockDisagrees;
                }
                let Pipeline { publisher, runtime, health, metrics, .. } = &*pipeline;
                courier::deliver(&**publisher, &**runtime, health, metrics, sent.copy).await;
                Sent::Acknowledged(ticket, sent.verdict)
            }
            .boxed(),
        );
    }

    fn settle(&mut self, ticket: Ticket, verdict: &Verdict) {
        self.pipeline.metrics.count(verdict);
        self.lane.settle(ticket);
    }

    /// Infrastructure is away: no event moves, the lane waits and tries the same deliveries again.
    fn interrupted(&mut self, interruption: &Interruption) {
        self.interruptions += 1;
        let reason = interruption.reason();
        if self.interruptions == 1 {
            tracing::warn!(lane = %self.lane.id(), error = reason, "lane pauses");
        }
        self.pipeline.metrics.interrupted_units.increment(1);
        self.pipeline.metrics.interruptions.increment(1);
        self.pipeline.health.report(self.lane.id().to_string(), reason);
        let delay = Backoff::INFRASTRUCTURE.delay(self.interruptions, jitter());
        self.pause = Some(self.pipeline.runtime.sleep(delay));
    }

    fn undisturbed(&mut self) {
        self.pipeline.metrics.committed_units.increment(1);
        if self.interruptions > 0 {
            tracing::info!(lane = %self.lane.id(), interruptions = self.interruptions, "lane resumes");
            self.pipeline.health.clear(&self.lane.id().to_string());
            self.interruptions = 0;
        }
    }
}
