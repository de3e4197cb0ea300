//! The service that charges each confirmed order once: it composes the kernel, PostgreSQL, Kafka and the payment
//! provider. Delivery rules belong to the kernel, the order domain to `core-order`; only [`compose`] knows more
//! than one adapter.

pub mod cli;
pub mod compose;
pub mod config;
pub mod conflicts;
#[cfg(feature = "crash-points")]
pub mod crash;
pub mod doubt;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod handler;
pub mod housekeeping;
pub mod ledger;
pub mod one_call;
pub mod operators;
pub mod reference;
pub mod retention;
pub mod telemetry;
