//! The port that writes copies: retries, dead letters, replays. It knows nothing of why a copy is written.

use async_trait::async_trait;

use crate::record::OutgoingRecord;

use super::BoxError;

/// Writes records.
#[async_trait]
pub trait Publisher: Send + Sync + 'static {
    /// Writes one record and returns only when the broker has acknowledged it on all in-sync replicas. An error
    /// means "not acknowledged": the record may have been written all the same.
    async fn publish(&self, record: &OutgoingRecord) -> Result<(), PublishError>;
}

/// Why a record was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The broker is away, the topic is missing or access is denied: try again, for as long as it takes.
    #[error("cannot write to {topic}")]
    Unavailable {
        /// The topic.
        topic: String,
        /// The client's error.
        #[source]
        source: BoxError,
    },
    /// The record is larger than the broker accepts.
    #[error("the record is too large for {topic}")]
    TooLarge {
        /// The topic.
        topic: String,
    },
}
