//! The provider as its callers see it, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test's own helper may panic")]

mod caller;
mod faults;
mod idempotency;
mod record;
