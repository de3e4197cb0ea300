//! The testbed's own promises, on real servers; no product crate is tested here.

#![allow(clippy::unwrap_used, reason = "a test and what it calls may panic")]

mod backend;
#[cfg(feature = "clients")]
mod clients;
mod kafka;
mod postgres;
mod proxy;
