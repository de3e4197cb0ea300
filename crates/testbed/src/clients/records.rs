//! Reading a topic as it is, from its beginning to a known end; nothing is decoded.

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Result, bail};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers, Message},
};

use super::kafka::LIMIT;

/// A record as the broker has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its key, if it has one.
    pub key: Option<Vec<u8>>,
    /// Its payload; none is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Its headers in order; one without a value is empty.
    pub headers: Vec<(String, Vec<u8>)>,
    /// In milliseconds since 1970.
    pub timestamp: Option<i64>,
}

impl ReadRecord {
    /// The text of the last header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rfind(|(key, _)| key == name)?;
        std::str::from_utf8(value).ok()
    }

    fn copied(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers: headers.map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec())).collect(),
            timestamp: message.timestamp().to_millis(),
        }
    }
}

/// Reads each partition from 0 on between its bounds, begin and end. The consumer must say where a partition ends: after
/// transactions the last offsets are no records.
pub(super) fn read(consumer: &BaseConsumer, topic: &str, bounds: &[(i64, i64)]) -> Result<Vec<ReadRecord>> {
    let mut wanted = TopicPartitionList::new();
    let mut unfinished = BTreeSet::new();
    for (partition, (begin, end)) in (0..).zip(bounds) {
        if begin < end {
            wanted.add_partition_offset(topic, partition, Offset::Offset(*begin))?;
            unfinished.insert(partition);
        }
    }
    consumer.assign(&wanted)?;
    let end_of = |partition: i32| usize::try_from(partition).ok().and_then(|at| bounds.get(at)).map(|(_, end)| *end);
    let mut records = Vec::new();
    let mut until = Instant::now() + LIMIT;
    while !unfinished.is_empty() {
        match consumer.poll(LIMIT / 100) {
            Some(Ok(message)) => {
                until = Instant::now() + LIMIT;
                let end = end_of(message.partition()).unwrap_or_default();
                if message.offset() < end {
                    records.push(ReadRecord::copied(&message));
                }
                if message.offset() + 1 >= end {
                    unfinished.remove(&message.partition());
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                unfinished.remove(&partition);
            }
            Some(Err(error)) if Instant::now() > until => return Err(error.into()),
            None if Instant::now() > until => bail!("{topic}: partitions {unfinished:?} do not come to their end"),
            Some(Err(_)) | None => {}
        }
    }
    records.sort_by_key(|record| (record.partition, record.offset));
    Ok(records)
}
