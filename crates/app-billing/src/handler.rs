//! What is done with a claimed OrderConfirmed: reserve the order, charge it, complete the ledger. It knows the
//! provider and the ledger by their ports only, and no delivery rule.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use core_delivery::ports::{Knowledge, Runtime};
use core_order::{
    Admission, BillingTx, ChargeReceipt, Claimed, CompletedCharge, Event, EventHandler, EventId, HandlerError,
    ORDER_ALREADY_CHARGED, OrderConfirmed, PaymentGateway, Refusal, Reservation, ReservationAnswer, StoreError,
};

use crate::conflicts::{Conclusion as ByTime, Conflicts};
use crate::doubt::{
    Conclusion, KeyMemory, Next, Opening, Question, after_charge, after_deaths, asks_first, before_charge, conclude,
    look_up_failed, unknown_outcome,
};
use crate::one_call::OneCall;

/// Charges confirmed orders.
pub struct ChargeOrders<G> {
    gateway: Arc<G>,
    conflicts: Conflicts,
    memory: KeyMemory,
    clock: Arc<dyn Runtime>,
    calls: OneCall<Settled>,
}

/// How a try ended, and whether it knew of an earlier one with an unknown outcome.
#[derive(Debug, Clone)]
struct Settled {
    result: Result<ChargeReceipt, HandlerError>,
    in_doubt: bool,
}

impl<G> ChargeOrders<G> {
    /// Charges through this provider. The clock is the wall's, as the ids of events carry it.
    pub fn new(gateway: Arc<G>, conflicts: Conflicts, memory: KeyMemory, clock: Arc<dyn Runtime>) -> Self {
        Self { gateway, conflicts, memory, clock, calls: OneCall::default() }
    }
}

impl<G: PaymentGateway> ChargeOrders<G> {
    /// Brings the order to an end that is certain, or says that it is not: asks before a charge that could be the
    /// second one, sends it, and asks what became of it where the answer does not tell.
    async fn settle(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, HandlerError> {
        let in_doubt = order.history().in_doubt;
        if asks_first(in_doubt, self.key_may_be_gone(order)) {
            let answer = self.gateway.look_up(order).await.map_err(|error| look_up_failed(error, None))?;
            if let Opening::Ended(conclusion) = before_charge(answer, self.key_may_be_gone(order)) {
                return self.end(order, conclusion);
            }
        }
        #[cfg(feature = "crash-points")]
        crate::crash::at_order(crate::crash::Moment::BeforeTheCharge, order.event().order_id());
        let charged = self.gateway.charge(order).await;
        #[cfg(feature = "crash-points")]
        crate::crash::at_order(crate::crash::Moment::AfterTheCharge, order.event().order_id());
        let error = match charged {
            Ok(receipt) => return Ok(receipt),
            Err(error) => error,
        };
        match after_charge(error, in_doubt) {
            Next::Fail(error) => Err(error),
            Next::Ask(question) => self.ask(order, question).await,
        }
    }

    async fn ask(&self, order: &Claimed<OrderConfirmed>, question: Question) -> Result<ChargeReceipt, HandlerError> {
        match self.gateway.look_up(order).await {
            Ok(answer) => self.end(order, conclude(question, answer)),
            Err(error) => Err(look_up_failed(error, Some(question))),
        }
    }

    fn end(&self, order: &Claimed<OrderConfirmed>, conclusion: Conclusion) -> Result<ChargeReceipt, HandlerError> {
        let event_id = order.event().id();
        match conclusion {
            Conclusion::Charged(receipt) => {
                tracing::info!(%event_id, "charged, as the look-up tells");
                Ok(receipt)
            }
            Conclusion::Failed(error) => Err(error),
            Conclusion::Wait { reason } => match self.conflicts.conclude(event_id, Instant::now()) {
                ByTime::Charged => {
                    tracing::info!(%event_id, reason, "taken as charged by an earlier call, as configured");
                    Ok(ChargeReceipt { provider_ref: None })
                }
                ByTime::TryAgain => Err(unknown_outcome(reason, None)),
            },
        }
    }

    fn key_may_be_gone(&self, order: &Claimed<OrderConfirmed>) -> bool {
        self.memory.may_be_gone(order.event().id(), self.clock.now())
    }
}

#[async_trait]
impl<G: PaymentGateway, U: BillingTx> EventHandler<OrderConfirmed, U> for ChargeOrders<G> {
    type Receipt = ChargeReceipt;

    /// The order is reserved before the provider is called: a second event for it can not charge it, wherever it
    /// is handled.
    async fn admit(&self, unit: &mut U, events: &[Claimed<OrderConfirmed>]) -> Result<Vec<Admission>, StoreError> {
        let reservations: Vec<Reservation<'_>> = events.iter().map(|claimed| reservation(claimed.event())).collect();
        let answers = unit.reserve(&reservations).await?;
        Ok(answers.into_iter().map(admission).collect())
    }

    /// What the ledger holds was charged, whatever became of the claim.
    async fn known(&self, unit: &mut U, events: &[Arc<OrderConfirmed>]) -> Result<Vec<Knowledge>, StoreError> {
        let events: Vec<EventId> = events.iter().map(|event| event.id()).collect();
        let charged = unit.charged(&events).await?;
        Ok(charged.into_iter().map(|charged| if charged { Knowledge::Handled } else { Knowledge::Unknown }).collect())
    }

    /// An order of nothing is charged by nobody. A call that runs already for the same event is joined; if it belongs to a
    /// delivery that knows of no doubt and this one does, its refusal is still to be asked about.
    async fn perform(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, HandlerError> {
        if order.event().total().minor_units == 0 {
            return Ok(ChargeReceipt { provider_ref: None });
        }
        let in_doubt = order.history().in_doubt;
        let call = async { Settled { result: self.settle(order).await, in_doubt } };
        match self.calls.run(order.event().id(), call).await {
            Settled { result: Err(HandlerError::Permanent(refusal)), in_doubt: false }
                if in_doubt && !refusal.settled =>
            {
                self.ask(order, Question::Refused(refusal)).await
            }
            Settled { result, .. } => result,
        }
    }

    /// An order whose charge killed the process may have been charged before: the provider is asked, and nothing is sent.
    async fn inquire(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, HandlerError> {
        match self.gateway.look_up(order).await {
            Ok(answer) => self.end(order, after_deaths(answer)),
            Err(error) => Err(look_up_failed(error, None)),
        }
    }

    async fn retract(&self, unit: &mut U, failed: &[Claimed<OrderConfirmed>]) -> Result<(), StoreError> {
        let events: Vec<EventId> = failed.iter().map(|claimed| claimed.event().id()).collect();
        unit.cancel(&events).await
    }

    async fn record(&self, unit: &mut U, done: &[(Claimed<OrderConfirmed>, ChargeReceipt)]) -> Result<(), StoreError> {
        let charges: Vec<CompletedCharge<'_>> = done
            .iter()
            .map(|(claimed, receipt)| CompletedCharge {
                event_id: claimed.event().id(),
                provider_ref: receipt.provider_ref.as_deref(),
            })
            .collect();
        unit.complete(&charges).await
    }
}

fn reservation(event: &OrderConfirmed) -> Reservation<'_> {
    Reservation {
        event_id: event.id(),
        order_id: event.order_id(),
        customer_id: event.customer_id(),
        total: event.total(),
    }
}

fn admission(answer: ReservationAnswer) -> Admission {
    match answer {
        ReservationAnswer::Reserved => Admission::Proceed,
        ReservationAnswer::ReservedBefore => Admission::ProceedInDoubt,
        ReservationAnswer::ChargedByThisEvent => Admission::Duplicate,
        ReservationAnswer::ChargedByAnotherEvent(other) => Admission::Refused(Refusal::new(
            ORDER_ALREADY_CHARGED,
            format!("the order is charged, or being charged, by event {other}"),
        )),
    }
}

#[cfg(test)]
mod tests;
