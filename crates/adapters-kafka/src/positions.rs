//! From positions of lanes to lists of partitions and back, with each element's error looked at. It decides nothing
//! about which positions are right.

use std::time::Duration;

use core_delivery::record::{LaneId, Topic};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use tracing::{debug, error, warn};

/// The lanes of a list.
pub(crate) fn lanes_of(list: &TopicPartitionList) -> Vec<LaneId> {
    let elements = list.elements();
    elements.iter().map(|e| LaneId { topic: Topic::new(e.topic()), partition: e.partition() }).collect()
}

/// The list of lanes, without offsets.
pub(crate) fn list_of<'a>(lanes: impl IntoIterator<Item = &'a LaneId>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for lane in lanes {
        list.add_partition(lane.topic.as_str(), lane.partition);
    }
    list
}

/// Stores positions with the client, which refuses partitions that are not assigned any more, and returns those it
/// took. This is the check before every commit: the broker itself would take the offset of a former owner.
pub(crate) fn store<C: ConsumerContext>(consumer: &BaseConsumer<C>, positions: &[(LaneId, i64)]) -> Vec<(LaneId, i64)> {
    let list = match list_with_offsets(positions) {
        Ok(list) => list,
        Err(error) => {
            error!(%error, "a position is no offset, nothing is committed");
            return Vec::new();
        }
    };
    // It is an error only if no partition at all was taken; each element tells more.
    if let Err(error) = consumer.store_offsets(&list) {
        debug!(%error, "no position was stored");
        warn_of_failures(&list, "a position was not stored");
        return Vec::new();
    }
    warn_of_failures(&list, "a position was not stored");
    let taken = |lane: &LaneId| {
        list.find_partition(lane.topic.as_str(), lane.partition).is_some_and(|element| element.error().is_ok())
    };
    positions.iter().filter(|(lane, _)| taken(lane)).cloned().collect()
}

/// The list of positions, for a commit.
pub(crate) fn list_with_offsets(positions: &[(LaneId, i64)]) -> Result<TopicPartitionList, ClientError> {
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for (lane, next) in positions {
        list.add_partition_offset(lane.topic.as_str(), lane.partition, Offset::Offset(*next))?;
    }
    Ok(list)
}

/// Where the consumer stands, for lanes of which it has read something.
pub(crate) fn reached<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> Vec<(LaneId, i64)> {
    let list = match consumer.position() {
        Ok(list) => list,
        Err(error) => {
            warn!(%error, "the consumer does not tell its positions");
            return Vec::new();
        }
    };
    let elements = list.elements();
    let known = elements.iter().filter_map(|e| match (e.error(), e.offset()) {
        (Ok(()), Offset::Offset(next)) => {
            Some((LaneId { topic: Topic::new(e.topic()), partition: e.partition() }, next))
        }
        _ => None,
    });
    known.collect()
}

/// Leads the consumer to positions and returns the lanes where it stands there now. The client refuses partitions that
/// it has not begun to fetch, or does not own any more: try again.
pub(crate) fn seek<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    positions: &[(LaneId, i64)],
    limit: Duration,
) -> Vec<LaneId> {
    let sought = list_with_offsets(positions).and_then(|list| consumer.seek_partitions(list, limit));
    match sought {
        Ok(list) => succeeded(Ok(()), &list, "a lane was not led to its start"),
        Err(error) => {
            debug!(%error, lanes = positions.len(), "lanes were not led to their start");
            Vec::new()
        }
    }
}

/// Pauses lanes and returns those that are paused now. A partition lost meanwhile is no error.
pub(crate) fn pause<C: ConsumerContext>(consumer: &BaseConsumer<C>, lanes: &[LaneId]) -> Vec<LaneId> {
    let list = list_of(lanes);
    let outcome = consumer.pause(&list);
    succeeded(outcome, &list, "a lane was not paused")
}

/// Resumes lanes and returns those that are read again. A partition lost meanwhile is no error.
pub(crate) fn resume<C: ConsumerContext>(consumer: &BaseConsumer<C>, lanes: &[LaneId]) -> Vec<LaneId> {
    let list = list_of(lanes);
    let outcome = consumer.resume(&list);
    succeeded(outcome, &list, "a lane was not resumed")
}

fn succeeded(outcome: Result<(), ClientError>, list: &TopicPartitionList, failure: &str) -> Vec<LaneId> {
    if let Err(error) = outcome {
        warn!(%error, failure, "the consumer refuses to change what it reads");
        return Vec::new();
    }
    warn_of_failures(list, failure);
    let elements = list.elements();
    let fine = elements.iter().filter(|e| e.error().is_ok());
    fine.map(|e| LaneId { topic: Topic::new(e.topic()), partition: e.partition() }).collect()
}

fn warn_of_failures(list: &TopicPartitionList, failure: &str) {
    for element in list.elements() {
        let Err(error) = element.error() else { continue };
        let (topic, partition) = (element.topic(), element.partition());
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::State | RDKafkaErrorCode::UnknownPartition) => {
                debug!(topic, partition, failure, "the partition is not assigned any more");
            }
            _ => warn!(topic, partition, %error, failure, "the consumer refuses a partition"),
        }
    }
}
