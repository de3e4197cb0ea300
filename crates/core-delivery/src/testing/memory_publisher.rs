//! A publisher that keeps what it is given, and fails when it is told to.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::ports::{PublishError, Publisher};
use crate::record::OutgoingRecord;

/// Keeps acknowledged records in memory.
#[derive(Debug, Default)]
pub struct MemoryPublisher {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    written: Vec<OutgoingRecord>,
    down: bool,
    refused: usize,
}

impl MemoryPublisher {
    /// While it is down, nothing is acknowledged.
    pub fn set_down(&self, down: bool) {
        self.with(|state| state.down = down);
    }

    /// What was acknowledged, in order.
    pub fn written(&self) -> Vec<OutgoingRecord> {
        self.with(|state| state.written.clone())
    }

    /// How many tries were not acknowledged.
    pub fn refused(&self) -> usize {
        self.with(|state| state.refused)
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Publisher for MemoryPublisher {
    async fn publish(&self, record: &OutgoingRecord) -> Result<(), PublishError> {
        self.with(|state| {
            if state.down {
                state.refused += 1;
                return Err(PublishError::Unavailable {
                    topic: record.topic.to_string(),
                    source: "the publisher is down".into(),
                });
            }
            state.written.push(record.clone());
            Ok(())
        })
    }
}
