//! The event `OrderConfirmed`, as its producer makes it and as it looks on the wire.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{CustomerId, Event, EventId, Money, Order, OrderId};

/// The value of `event_type` on the wire.
pub const EVENT_TYPE: &str = "OrderConfirmed";

/// An order was confirmed and is to be charged once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderConfirmed {
    pub(crate) event_id: EventId,
    pub(crate) occurred_at: OffsetDateTime,
    pub(crate) order_id: OrderId,
    pub(crate) customer_id: CustomerId,
    pub(crate) total: Money,
}

impl OrderConfirmed {
    /// Makes the event of a confirmed order, with a new id. The producer calls it once for each order, in the
    /// transaction that confirms the order, and stores the result: sending again must send the same id
    /// (R-KFK-IDEM-1).
    pub fn from_order(order: &Order, occurred_at: OffsetDateTime) -> Result<Self, InvalidTotal> {
        if order.total.minor_units < 0 {
            return Err(InvalidTotal(order.total.minor_units));
        }
        Ok(Self {
            event_id: EventId::generate(),
            occurred_at,
            order_id: order.id.clone(),
            customer_id: order.customer.clone(),
            total: order.total,
        })
    }

    /// When the order was confirmed.
    pub fn occurred_at(&self) -> OffsetDateTime {
        self.occurred_at
    }

    /// The order.
    pub fn order_id(&self) -> &OrderId {
        &self.order_id
    }

    /// Who pays.
    pub fn customer_id(&self) -> &CustomerId {
        &self.customer_id
    }

    /// How much.
    pub fn total(&self) -> Money {
        self.total
    }

    /// The event as compact JSON, the payload of its record. The record key is [`Event::key`].
    pub fn to_json(&self) -> Vec<u8> {
        let wire = Wire {
            event_id: self.event_id.to_string(),
            event_type: EVENT_TYPE,
            occurred_at: self.occurred_at.format(&Rfc3339).expect("years 0 to 9999 have an RFC 3339 form"),
            order_id: self.order_id.as_str(),
            customer_id: self.customer_id.as_str(),
            total_amount: self.total.minor_units,
            currency: self.total.currency.as_str(),
        };
        serde_json::to_vec(&wire).expect("strings and integers always serialize")
    }
}

impl Event for OrderConfirmed {
    fn id(&self) -> EventId {
        self.event_id
    }

    fn key(&self) -> &str {
        self.order_id.as_str()
    }
}

#[derive(Serialize)]
struct Wire<'a> {
    event_id: String,
    event_type: &'a str,
    occurred_at: String,
    order_id: &'a str,
    customer_id: &'a str,
    total_amount: i64,
    currency: &'a str,
}

/// A negative total can not be charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the total is {0} minor units, which is negative")]
pub struct InvalidTotal(pub i64);
