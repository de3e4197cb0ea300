//! Events and ports of the order domain, on the delivery kernel. No database, broker, web or runtime here, and no
//! decision about delivery: the kernel makes those.

mod billing;
mod decode;
mod money;
mod order;
mod order_confirmed;
mod payment;

pub use billing::{BillingTx, CompletedCharge, Reservation, ReservationAnswer};
pub use core_delivery::claim::{Claimed, ConsumerGroup};
pub use core_delivery::event::{Event, EventId};
pub use core_delivery::ports::{
    Admission, Effect, ErrorClass, EventHandler, HandlerError, Refusal, StoreError, UnitOfWork, UnitOfWorkFactory,
};
pub use decode::OrderConfirmedDecoder;
pub use money::{Currency, InvalidCurrency, Money};
pub use order::{CustomerId, InvalidId, Order, OrderId};
pub use order_confirmed::{EVENT_TYPE, InvalidTotal, OrderConfirmed};
pub use payment::{ChargeReceipt, GatewayError, LookUp, PaymentGateway};

/// The consumer group that charges confirmed orders.
pub const BILLING_GROUP: &str = "billing-order-confirmed";

/// The class of a second event for an order that is charged, or being charged, under another event id.
pub const ORDER_ALREADY_CHARGED: ErrorClass = ErrorClass::new("order_already_charged");
