//! The units of a lane: when one starts, what it leaves behind, and what an interruption means. Nothing here waits.

use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::FutureExt;

use crate::crash::{CrashPoint, reached};
use crate::event::{Event, EventId};
use crate::ports::{EventHandler, UnitOfWorkFactory};

use super::{CALLS_AHEAD, Exit, HALTED_AGAIN, LaneDriver, PROBE, STORE_INTERVAL};
use crate::delivery::backoff::{Backoff, jitter};
use crate::delivery::batch::{BatchReport, Interruption, Outcome, PositionPlan};
use crate::delivery::lane::Delivery;
use crate::delivery::perform::Performed;
use crate::delivery::storm::Call;
use crate::delivery::verdict::{Halt, Verdict};
use crate::delivery::watermark::Settled;

impl<E, F, H> LaneDriver<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    /// Starts the next unit if none runs and something may be tried, or if the last settled records of a lane that ends
    /// have no stored position yet.
    pub(super) fn start_unit(&mut self) {
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
        let now = self.pipeline.runtime.now();
        let rages = self.pipeline.storm().rages();
        let batch = if !self.may_run() {
            vec![]
        } else if rages {
            self.probes += 1;
            self.lane.next_probe(now, PROBE, self.probes)
        } else {
            // What cannot be called soon would only be claimed and released again.
            let callable = CALLS_AHEAD * self.pipeline.batch.calls.limit();
            self.lane.next_batch(now, self.pipeline.settings.batch_max.min(callable))
        };
        if !batch.is_empty() {
            self.run_unit(batch);
        } else if self.unstored() && self.store_soon.is_none() {
            self.store_soon = Some(self.pipeline.runtime.sleep(STORE_INTERVAL));
        }
    }

    /// What a lane that ends still owes the store: what calls that outlived their units brought, and the position of
    /// records that got their verdict outside of a unit.
    pub(super) fn start_last_unit(&mut self) {
        let unrecorded = &self.unrecorded;
        let batch = self.lane.batch_of(|event| unrecorded.knows(event));
        if !batch.is_empty() || self.copies.is_empty() && self.stragglers.is_empty() && self.unstored() {
            self.run_unit(batch);
        }
    }

    /// Runs a unit in a task of its own, which nothing here can cancel.
    pub(super) fn run_unit(&mut self, batch: Vec<Delivery<E>>) {
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
        let company = (!self.is_in_solitude()).then(|| Arc::clone(&self.pipeline.company));
        let unit = async move {
            // Held until the unit has ended. Nobody waits here unless a lane searches for what killed the process.
            let _company = match company {
                Some(company) => Some(company.read_arc().await),
                None => None,
            };
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

    pub(super) fn unit_ended(&mut self, report: BatchReport<E>) -> Option<Exit> {
        let mut postponed = vec![];
        if report.stored.is_some() {
            (self.stored, self.stored_is_void) = (report.stored, false);
            if report.outcomes.is_empty() {
                reached(CrashPoint::PositionOutsideUnit);
            }
        }
        self.ran(report.outcomes.iter().map(|(_, outcome)| outcome));
        // What is struck out was not called, and says nothing about the world: no storm holds it back.
        let called = report.outcomes.iter().filter(|(delivery, _)| !delivery.history.struck_out);
        let rages = self.note_calls(called.map(|(_, outcome)| outcome));
        for (delivery, outcome) in report.outcomes {
            match outcome {
                Outcome::Failed(failure) if rages && !delivery.history.struck_out => {
                    self.pipeline.batch.doubts.note(delivery.event.id(), failure.effect);
                    postponed.push(delivery);
                }
                Outcome::Applied => {
                    tracing::debug!(event_id = %delivery.event.id(), lane = %self.lane.id(),
                        offset = delivery.record.offset.0, "event applied");
                    self.settle(delivery.ticket, &Verdict::Applied, Settled::ByClaim(delivery.event.id()));
                }
                Outcome::Duplicate => {
                    tracing::info!(event_id = %delivery.event.id(), lane = %self.lane.id(),
                        offset = delivery.record.offset.0, "duplicate skipped");
                    self.settle(delivery.ticket, &Verdict::Duplicate, Settled::ByClaim(delivery.event.id()));
                }
                Outcome::Failed(failure) | Outcome::Refused(failure) => self.failed(&delivery, &failure),
                Outcome::Postponed => postponed.push(delivery),
                Outcome::Straggling => {
                    tracing::debug!(event_id = %delivery.event.id(), lane = %self.lane.id(), "call outlives its unit");
                    self.lane.straggles(delivery);
                    reached(CrashPoint::StragglerReleased);
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
                    return (self.copies.is_empty() && self.stragglers.is_empty()).then_some(Exit::Released);
                }
            }
        }
        None
    }

    /// Counts how the calls of a unit went, and tells whether failing has become the rule. What was refused without a
    /// call says nothing about the world.
    pub(super) fn note_calls<'a>(&self, outcomes: impl Iterator<Item = &'a Outcome>) -> bool {
        self.note(outcomes.filter_map(|outcome| match outcome {
            Outcome::Applied => Some(Call::Succeeded),
            Outcome::Failed(_) => Some(Call::Failed),
            Outcome::Refused(_) | Outcome::Duplicate | Outcome::Postponed | Outcome::Straggling => None,
        }))
    }

    pub(super) fn note(&self, calls: impl IntoIterator<Item = Call>) -> bool {
        let now = self.pipeline.runtime.now();
        let mut storm = self.pipeline.storm();
        calls.into_iter().for_each(|call| storm.note(call, now));
        storm.rages()
    }

    /// A call that outlived its unit has ended: its receipt is recorded by the next unit, under a claim of its own, and
    /// what was reserved for one that certainly had no effect is taken back by it.
    pub(super) fn straggled(&mut self, event: EventId, performed: Performed<H::Receipt>) {
        let Some(delivery) = self.lane.straggler_ended(event) else {
            return;
        };
        if let Performed::Done(_) | Performed::Failed(_) = &performed {
            self.ran([&Outcome::Applied]);
        }
        let in_doubt = delivery.history.in_doubt || self.pipeline.batch.doubts.contains(event);
        let struck_out = delivery.history.struck_out;
        let rages = self.note(match &performed {
            _ if struck_out => None,
            Performed::Done(_) => Some(Call::Succeeded),
            // Counted by the unit that takes its reservation back.
            Performed::Failed(failure) if failure.had_no_effect(in_doubt) => None,
            Performed::Failed(_) => Some(Call::Failed),
            Performed::Halted(_) => None,
        });
        match performed {
            Performed::Failed(failure) if rages && !struck_out => {
                self.pipeline.batch.doubts.note(event, failure.effect);
                self.lane.put_back(delivery);
            }
            Performed::Done(receipt) => {
                self.unrecorded.receipts.insert(event, receipt);
                self.lane.put_back(delivery);
            }
            Performed::Failed(failure) if failure.had_no_effect(in_doubt) => {
                self.unrecorded.failures.insert(event, failure);
                self.lane.put_back(delivery);
            }
            Performed::Failed(failure) => self.failed(&delivery, &failure),
            Performed::Halted(halt) => {
                self.lane.put_back(delivery);
                if let Some(Halt { reason, effect }) = halt {
                    self.pipeline.batch.doubts.note(event, effect);
                    self.interrupted(&Interruption::Handler(reason));
                }
            }
        }
    }

    /// Infrastructure is away: no event moves, the lane waits and tries the same deliveries again.
    pub(super) fn interrupted(&mut self, interruption: &Interruption) {
        self.interruptions += 1;
        let reason = interruption.reason();
        if self.interruptions == 1 {
            tracing::warn!(lane = %self.lane.id(), error = reason, "lane pauses");
        }
        self.pipeline.metrics.interrupted_units.increment(1);
        self.pipeline.metrics.interruptions.increment(1);
        self.pipeline.health.report(&self.assignment, reason);
        let delay = Backoff::INFRASTRUCTURE.delay(self.interruptions, jitter());
        self.pause = Some(self.pipeline.runtime.sleep(delay));
    }

    pub(super) fn undisturbed(&mut self) {
        self.pipeline.metrics.committed_units.increment(1);
        if self.interruptions > 0 {
            tracing::info!(lane = %self.lane.id(), interruptions = self.interruptions, "lane resumes");
            self.pipeline.health.clear(&self.assignment);
            self.interruptions = 0;
        }
    }
}
