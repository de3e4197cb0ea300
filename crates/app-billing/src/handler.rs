//! What is done with a claimed OrderConfirmed: reserve the order, charge it, complete the ledger. It knows the
//! provider and the ledger by their ports only, and no delivery rule.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use core_order::{
    Admission, BillingTx, ChargeReceipt, Claimed, CompletedCharge, Effect, ErrorClass, Event, EventHandler, EventId,
    GatewayError, HandlerError, ORDER_ALREADY_CHARGED, OrderConfirmed, PaymentGateway, Refusal, Reservation,
    ReservationAnswer, StoreError,
};

use crate::conflicts::{Conclusion, Conflicts};

/// The provider declined the charge.
const DECLINED: ErrorClass = ErrorClass::new("declined");

/// The provider knows the key with another body.
const KEY_REUSED: ErrorClass = ErrorClass::new("key_reused");

/// Charges confirmed orders.
#[derive(Debug)]
pub struct ChargeOrders<G> {
    gateway: Arc<G>,
    conflicts: Conflicts,
}

impl<G> ChargeOrders<G> {
    /// Charges through this provider.
    pub fn new(gateway: Arc<G>, conflicts: Conflicts) -> Self {
        Self { gateway, conflicts }
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

    async fn perform(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, HandlerError> {
        if order.event().total().minor_units == 0 {
            return Ok(ChargeReceipt { provider_ref: None });
        }
        match self.gateway.charge(order).await {
            Err(GatewayError::Conflict { .. })
                if self.conflicts.conclude(order.event().id(), Instant::now()) == Conclusion::Charged =>
            {
                Ok(ChargeReceipt { provider_ref: None })
            }
            result => result.map_err(classified),
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
        ReservationAnswer::ChargedByThisEvent => Admission::Duplicate,
        ReservationAnswer::ChargedByAnotherEvent(other) => Admission::Refused(Refusal {
            class: ORDER_ALREADY_CHARGED,
            reason: format!("the order is charged, or being charged, by event {other}"),
        }),
    }
}

fn classified(error: GatewayError) -> HandlerError {
    match error {
        GatewayError::Transient { reason, retry_after, effect } => {
            HandlerError::Transient { reason, retry_after, effect }
        }
        GatewayError::Conflict { reason } => {
            HandlerError::Transient { reason, retry_after: None, effect: Effect::Unknown }
        }
        GatewayError::KeyReused { reason } => HandlerError::Permanent(Refusal { class: KEY_REUSED, reason }),
        GatewayError::Declined { reason } => HandlerError::Permanent(Refusal { class: DECLINED, reason }),
        GatewayError::Misconfigured { reason } => HandlerError::Halt { reason },
    }
}
