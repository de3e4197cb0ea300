//! HTTP in and out: the payment client and the operations endpoints. No delivery rule, and nothing about the broker
//! or the database.

#[cfg(feature = "ops")]
pub mod ops;
#[cfg(feature = "payment")]
pub mod payment;
