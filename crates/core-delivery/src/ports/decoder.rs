//! The port that turns a record into an event. Pure: no waiting, no clock, no store.

use crate::record::Record;

use super::ErrorClass;

/// Decodes the records of one topic.
pub trait EventDecoder<E>: Send + Sync + 'static {
    /// Decodes one record. Must not panic, whatever the bytes.
    fn decode(&self, record: &Record) -> Decoded<E>;
}

/// What a record turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<E> {
    /// An event for this consumer.
    Event(E),
    /// Not for this consumer: acknowledged and counted.
    Ignored(IgnoreReason),
    /// Cannot be read: a dead letter.
    Undecodable(DecodeError),
}

/// Why a record is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The payload is null.
    Tombstone,
    /// An event of another type shares the topic.
    OtherType,
}

impl IgnoreReason {
    /// The word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::OtherType => "other_type",
        }
    }
}

/// Why a record cannot be read. `Display` names the field or the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DecodeError {
    /// The class of the dead letter.
    pub class: ErrorClass,
    /// What is wrong and where.
    pub reason: String,
}
