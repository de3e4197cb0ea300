//! A record as a topic carries it, and the coordinates of where it lies. Nothing here may interpret the payload.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::event::UnixMillis;

/// The name of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    /// Names a topic.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One partition of one topic: the unit of order, of assignment and of progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    /// The topic.
    pub topic: Topic,
    /// The partition's number.
    pub partition: i32,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Counts the assignments of a lane: what belongs to an older one changes nothing (D-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// A lane as it is owned now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The lane.
    pub lane: LaneId,
    /// Which of this process's assignments of the lane.
    pub epoch: Epoch,
}

/// Which log a lane really is. A topic that was deleted and made again, or a cluster that was built anew, has the same
/// name and other offsets: a position of one says nothing about the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogIdentity {
    /// The cluster's id.
    pub cluster: Arc<str>,
    /// The topic's id.
    pub topic: Arc<str>,
}

/// Where a record lies in its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(pub i64);

impl Offset {
    /// The position that stands for "this record and all before it are done".
    pub fn committable(self) -> Committable {
        Committable(self.0 + 1)
    }
}

/// The next offset to read, which is what Kafka stores for a group: never the offset of a record that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Committable(pub i64);

/// A header as it lies on the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The key.
    pub key: String,
    /// The value; Kafka tells null from empty.
    pub value: Option<Bytes>,
}

/// A record that a stream delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it lies.
    pub offset: Offset,
    /// The broker's or the producer's time; absent on very old records.
    pub timestamp: Option<UnixMillis>,
    /// The record key.
    pub key: Option<Bytes>,
    /// The payload; null is a tombstone.
    pub payload: Option<Bytes>,
    /// The headers that could be read, in order.
    pub headers: Vec<Header>,
    /// How many headers could not be read, because their key is not UTF-8.
    pub unreadable_headers: usize,
}

impl Record {
    /// What the record weighs in memory, in bytes.
    pub fn weight(&self) -> usize {
        let body = self.key.as_ref().map_or(0, Bytes::len) + self.payload.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|h| h.key.len() + h.value.as_ref().map_or(0, Bytes::len));
        body + headers.sum::<usize>()
    }
}

/// A record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingRecord {
    /// The topic.
    pub topic: Topic,
    /// The wanted partition: kept if the topic has it, else the key decides.
    pub partition: i32,
    /// The record key.
    pub key: Option<Bytes>,
    /// The payload, byte for byte.
    pub payload: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<Header>,
}
