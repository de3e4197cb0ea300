//! librdkafka's own mock cluster, which stands in for a broker where there is none.

use std::time::{Duration, Instant};

use adapters_kafka::{InspectError, KafkaSettings, group_members, lane_facts};
use core_delivery::ports::RecordStream;
use core_delivery::record::{Committable, Topic};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::broker::{LIMIT, unique};
use crate::member::Member;

#[tokio::test]
async fn the_mock_cluster_tells_all_that_an_arrival_needs() {
    let cluster = MockCluster::new(1).expect("a cluster");
    let topic = Topic::new(unique("mocked"));
    cluster.create_topic(topic.as_str(), 2, 1).expect("created");
    let settings = KafkaSettings::new(cluster.bootstrap_servers());
    let mut member = Member::start(&settings, "billing", &topic);
    member.until(|m| m.owns(0) && m.owns(1)).await;
    let arrival = member.arrival(0).clone();
    assert_eq!((arrival.committed, arrival.first, arrival.end), (None, Committable(0), Committable(0)));
    let facts = lane_facts(&settings, "billing", std::slice::from_ref(&topic)).await.expect("told");
    assert_eq!(facts[0].arrival, arrival);
    // It does not know how to describe a group, and that is not a group without members.
    let error = group_members(&settings, "billing").await;
    assert!(matches!(error, Err(InspectError::Unknown { .. })), "{error:?}");
    member.stop().await;
}

#[tokio::test]
async fn a_lane_waits_until_all_is_known_and_may_be_given_away_meanwhile() {
    let cluster = MockCluster::new(1).expect("a cluster");
    let topic = Topic::new(unique("mocked"));
    cluster.create_topic(topic.as_str(), 1, 1).expect("created");
    let settings = KafkaSettings::new(cluster.bootstrap_servers());
    let failures = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR; 10_000];
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &failures);
    let mut leaving = Member::start(&settings, "leaving", &topic);
    waits(&leaving).await;
    leaving.control.stop();
    assert!(tokio::time::timeout(LIMIT, leaving.stream.next()).await.expect("ends").is_none(), "never heard of");

    let mut staying = Member::start(&settings, "staying", &topic);
    waits(&staying).await;
    cluster.clear_request_errors(RDKafkaApiKey::ListOffsets);
    staying.until(|m| m.owns(0)).await;
    staying.stop().await;
}

async fn waits(member: &Member) {
    let health = member.stream.health();
    let deadline = Instant::now() + LIMIT;
    while !health.trouble().is_some_and(|trouble| trouble.text.contains("1 lanes wait")) {
        assert!(Instant::now() < deadline, "the health does not tell: {:?}", health.trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
