//! What an operator's commands see, without a member.

use std::time::Instant;

use adapters_kafka::{InspectError, KafkaSettings, group_members, read_topic};
use core_delivery::record::{LaneId, Record, Topic};
use rdkafka::message::OwnedHeaders;

use crate::broker::{LIMIT, Transactions, numbers, produce, produce_with_headers, settings, topic, unique};
use crate::member::Member;

async fn read(topic: &Topic) -> Vec<(Record, LaneId)> {
    let mut all = Vec::new();
    let count = read_topic(&settings(), topic, |record, lane| all.push((record, lane))).await.expect("read");
    assert_eq!(count, all.len());
    all
}

#[tokio::test]
async fn the_members_of_a_group_are_counted() {
    let (topic, group) = (topic("members", 2).await, unique("group"));
    assert_eq!(group_members(&settings(), &group).await.expect("told"), 0, "there is no such group");
    let mut first = Member::start(&settings(), &group, &topic);
    first.until(|m| m.owns(0)).await;
    assert_eq!(group_members(&settings(), &group).await.expect("told"), 1);
    first.stop().await;
    let deadline = Instant::now() + LIMIT;
    while group_members(&settings(), &group).await.expect("told") > 0 {
        assert!(Instant::now() < deadline, "it left");
    }
    let error = group_members(&KafkaSettings::new("127.0.0.1:1"), &group).await;
    let Err(InspectError::Unknown { reason, .. }) = error else { panic!("{error:?}") };
    assert!(reason.to_lowercase().contains("refused"), "{reason}");
}

#[tokio::test]
async fn all_records_of_a_topic_are_read_to_the_end_as_it_was() {
    let topic = topic("whole", 3).await;
    produce_with_headers(&topic, OwnedHeaders::new()).await;
    produce(&topic, 0, numbers(0..1_500)).await;
    produce(&topic, 2, numbers(0..3)).await;
    let all = read(&topic).await;
    assert_eq!(all.len(), 1_504);
    for (partition, count) in [(0, 1_501), (1, 0), (2, 3)] {
        let offsets = all.iter().filter(|(_, lane)| lane.partition == partition).map(|(record, _)| record.offset.0);
        assert!(offsets.eq(0..count), "in order, each once");
    }
    let error = read_topic(&settings(), &Topic::new(unique("none")), |_, _| {}).await;
    assert!(matches!(error, Err(InspectError::NoTopic { .. })), "{error:?}");
}

#[tokio::test]
async fn a_topic_without_records_is_read_at_once() {
    let topic = topic("empty", 2).await;
    assert_eq!(read(&topic).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reading_ends_behind_markers_and_before_an_open_transaction() {
    let topic = topic("read-markers", 1).await;
    let transactions = Transactions::new(&topic);
    transactions.write(3, true).await;
    transactions.write(2, false).await;
    transactions.begin(1).await;
    assert_eq!(read(&topic).await.len(), 3);
    transactions.end(true).await;
    assert_eq!(read(&topic).await.len(), 4);
}
