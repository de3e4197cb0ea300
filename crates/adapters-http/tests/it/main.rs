//! The HTTP adapters over real sockets: against the sandbox provider, and against servers that misbehave.
#![cfg(all(feature = "ops", feature = "payment"))]
#![allow(clippy::unwrap_used, reason = "a test's own helper may panic")]

mod broken_servers;
mod look_up;
mod metrics;
mod operations;
mod orders;
mod sandbox_provider;
mod scripted_server;
