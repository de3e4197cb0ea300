//! Drives one assignment of one lane: feeds the machine, runs its units one after the other, sends its copies and
//! reports its progress. All decisions are the machine's and the batch's.

use std::future::pending;
use std::sync::Arc;

use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{pin_mut, select_biased};

use crate::event::Event;
use crate::ports::{EventHandler, UnitOfWorkFactory};
use crate::record::{Assignment, Record};

use super::backoff::{Backoff, jitter};
use super::batch::{BatchReport, Interruption, Outcome, Receipts};
use super::consumer::Pipeline;
use super::courier;
use super::lane::{Admitted, Delivery, Lane};
use super::routing::dispatch;
use super::verdict::{Failure, Verdict};
use super::watermark::Ticket;

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
    lane: Lane<E>,
    inputs: mpsc::UnboundedReceiver<Input>,
    unit: Option<oneshot::Receiver<UnitEnd<E, H::Receipt>>>,
    receipts: Receipts<H::Receipt>,
    copies: FuturesUnordered<BoxFuture<'static, (Ticket, Verdict)>>,
    pause: Option<BoxFuture<'static, ()>>,
    interruptions: u32,
    draining: bool,
}

type UnitEnd<E, R> = (BatchReport<E>, Receipts<R>);

enum Wake<E, R> {
    Input(Option<Input>),
    Unit(Result<UnitEnd<E, R>, oneshot::Canceled>),
    Copied(Ticket, Verdict),
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
        lane: Lane<E>,
        inputs: mpsc::UnboundedReceiver<Input>,
    ) -> Self {
        Self {
            pipeline,
            assignment,
            lane,
            inputs,
            unit: None,
            receipts: Receipts::new(),
            copies: FuturesUnordered::new(),
            pause: None,
            interruptions: 0,
            draining: false,
        }
    }

    /// Runs until the lane is released or lost. Dropping it abandons the lane; a running unit goes on to its end
    /// in its own task, and what it brings changes nothing here any more.
    pub(super) async fn run(mut self) -> Exit {
        let exit = self.drive().await;
        self.pipeline.health.clear(&self.lane.id().to_string());
        exit
    }

    async fn drive(&mut self) -> Exit {
        loop {
            self.start_unit();
            if let Some(progress) = self.lane.take_progress() {
                self.pipeline.control.progress(&self.assignment, progress);
            }
            if self.draining && self.unit.is_none() && self.copies.is_empty() {
                return Exit::Released;
            }
            match self.wake().await {
                Wake::Input(None) => return Exit::Abandoned,
                Wake::Input(Some(Input::Drain)) => self.draining = true,
                Wake::Input(Some(Input::Records(records))) => {
                    records.into_iter().for_each(|record| self.admit(record));
                }
                Wake::Unit(Ok((report, receipts))) => {
                    self.unit = None;
                    self.receipts = receipts;
                    self.unit_ended(report);
                }
                Wake::Unit(Err(oneshot::Canceled)) => return Exit::UnitPanicked,
                Wake::Copied(ticket, verdict) => self.settle(ticket, &verdict),
                Wake::Time => self.pause = None,
            }
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
        let unit = &mut self.unit;
        let unit = async {
            match unit {
                Some(unit) => unit.await,
                None => pending().await,
            }
        }
        .fuse();
        pin_mut!(time, unit);
        select_biased! {
            input = self.inputs.next() => Wake::Input(input),
            ended = unit => Wake::Unit(ended),
            (ticket, verdict) = self.copies.select_next_some() => Wake::Copied(ticket, verdict),
            () = time => Wake::Time,
        }
    }

    /// Starts the next unit if none runs and something may be tried. It runs in a task of its own, which nothing
    /// here can cancel.
    fn start_unit(&mut self) {
        if self.draining || self.pause.is_some() || self.unit.is_some() {
            return;
        }
        let batch = self.lane.next_batch(self.pipeline.runtime.now(), self.pipeline.settings.batch_max);
        if batch.is_empty() {
            return;
        }
        let (told, ended) = oneshot::channel();
        let pipeline = Arc::clone(&self.pipeline);
        let mut receipts = std::mem::take(&mut self.receipts);
        let unit = async move {
            let started = pipeline.runtime.now();
            pipeline.metrics.unit_events.record(batch.len() as f64);
            let report = pipeline.batch.run(batch, &mut receipts).await;
            pipeline.metrics.unit_seconds.record(pipeline.runtime.now().since(started).as_secs_f64());
            // The lane may be gone: then nobody waits for the report, and the next owner decides by the claims.
            drop(told.send((report, receipts)));
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

    fn unit_ended(&mut self, report: BatchReport<E>) {
        let mut postponed = vec![];
        for (delivery, outcome) in report.outcomes {
            match outcome {
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
            }
        }
        self.lane.unit_ended(postponed);
        match report.interruption {
            Some(interruption) => self.interrupted(&interruption),
            None => self.undisturbed(),
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
        self.copies.push(
            async move {
                let Pipeline { publisher, runtime, health, metrics, .. } = &*pipeline;
                courier::deliver(&**publisher, &**runtime, health, metrics, sent.copy).await;
                (ticket, sent.verdict)
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
