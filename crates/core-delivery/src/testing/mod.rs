//! What tests of this and of other crates need. Never part of a normal build: the feature `testing` is barred from
//! normal dependencies.

mod contract;
mod memory_publisher;
mod memory_store;
mod scripted_stream;

use std::sync::Arc;

use crate::claim::Claimed;

pub use contract::store_contract;
pub use memory_publisher::MemoryPublisher;
pub use memory_store::{MemoryStore, MemoryUnit, Operation};
pub use scripted_stream::{Script, ScriptedStream};

/// A proof without a claim, for tests of handlers.
pub fn claimed<E>(event: E) -> Claimed<E> {
    Claimed::new(Arc::new(event))
}
