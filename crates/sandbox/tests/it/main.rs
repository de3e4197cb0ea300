//! The provider as its callers see it, over real sockets.

mod caller;
mod faults;
mod idempotency;
mod record;
