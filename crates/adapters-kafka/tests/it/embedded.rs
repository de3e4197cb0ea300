//! librdkafka's own mock cluster, which stands in for a broker where there is none.

use adapters_kafka::{KafkaSettings, group_members, lane_facts};
use core_delivery::record::{Committable, Topic};
use rdkafka::mocking::MockCluster;

use crate::broker::unique;
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
    assert_eq!(group_members(&settings, "billing").await.expect("told"), 1);
    member.stop().await;
}
