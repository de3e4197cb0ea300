//! The provider as its callers see it, over real sockets, and (feature `integration`) real servers of PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test's own helper may panic")]

mod caller;
mod faults;
mod idempotency;
#[cfg(feature = "integration")]
mod postgres;
mod record;
mod weather;
