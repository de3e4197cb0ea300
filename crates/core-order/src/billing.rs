//! The port of the charge ledger: the application's tables in the unit that holds the claim.

use async_trait::async_trait;

use crate::{CustomerId, EventId, Money, OrderId, StoreError};

/// The ledger in an open unit. It can neither claim nor commit.
#[async_trait]
pub trait BillingTx: Send {
    /// Which of these events have charged their order; one answer for each, in order.
    async fn charged(&mut self, events: &[EventId]) -> Result<Vec<bool>, StoreError>;

    /// Reserves the orders before the provider is called, so that no other event can charge them; one answer for
    /// each, in order. An order that another open unit holds is waited for.
    async fn reserve(&mut self, reservations: &[Reservation<'_>]) -> Result<Vec<ReservationAnswer>, StoreError>;

    /// Takes back reservations of this unit.
    async fn cancel(&mut self, events: &[EventId]) -> Result<(), StoreError>;

    /// Completes reservations of this unit.
    async fn complete(&mut self, charges: &[CompletedCharge<'_>]) -> Result<(), StoreError>;
}

/// An order to be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// The event that charges the order.
    pub event_id: EventId,
    /// The order.
    pub order_id: &'a OrderId,
    /// Who pays.
    pub customer_id: &'a CustomerId,
    /// How much.
    pub total: Money,
}

/// The ledger's answer to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationAnswer {
    /// The order is reserved by this unit.
    Reserved,
    /// An earlier unit reserved it for this very event and left it so: a try of the event may have charged it.
    ReservedBefore,
    /// The ledger holds the order under this very event: it was charged before.
    ChargedByThisEvent,
    /// The ledger holds the order under another event.
    ChargedByAnotherEvent(EventId),
}

/// A charge that the provider confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedCharge<'a> {
    /// The event that charged the order.
    pub event_id: EventId,
    /// The provider's name of the charge.
    pub provider_ref: Option<&'a str>,
}
