//! What tests of this and of other crates need. Never part of a normal build: the feature `testing` is barred from
//! normal dependencies.

mod contract;
mod memory_publisher;
mod memory_store;
mod scripted_stream;

use std::sync::Arc;

use crate::claim::{Claimed, History};

pub use contract::{expiry_contract, store_contract};
pub use memory_publisher::MemoryPublisher;
pub use memory_store::{MemoryStore, MemoryUnit, Operation};
pub use scripted_stream::{Script, ScriptedStream};

/// A proof without a claim, for tests of handlers.
pub fn claimed<E>(event: E) -> Claimed<E> {
    claimed_with(event, History::default())
}

/// A proof without a claim, of an event with this history.
pub fn claimed_with<E>(event: E, history: History) -> Claimed<E> {
    Claimed::new(Arc::new(event), history)
}
