//! scratch
use std::time::Instant;
use crate::broker::*;
use crate::member::Member;
use rdkafka::mocking::MockCluster;
use adapters_kafka::*;
use core_delivery::record::Topic;
#[tokio::test]
async fn latency() {
    let (topic, group) = (topic("lat", 6).await, unique("group"));
    for _ in 0..5 { let t=Instant::now(); let f = lane_facts(&settings(), &group, &[topic.clone()]).await.unwrap(); eprintln!("facts {} {:?}", f.len(), t.elapsed()); }
    produce(&topic, 0, numbers(0..3)).await;
    let t=Instant::now();
    let mut m = Member::start(&settings(), &group, &topic);
    m.until(|m| m.owns(0)).await; eprintln!("announced {:?}", t.elapsed());
    m.until(|m| m.count(0) == 3).await; eprintln!("records {:?}", t.elapsed());
    let t=Instant::now(); let old=m.lane(0); m.control.restart(&old);
    m.until(|m| !m.lost.is_empty()).await; 
    m.until(|m| m.count(0) == 3).await; eprintln!("restart {:?}", t.elapsed());
    let t=Instant::now(); m.stop().await; eprintln!("stop {:?}", t.elapsed());
    eprintln!("{:?}", group_members(&settings(), &group).await);
}
#[tokio::test]
async fn mock() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 2, 1).unwrap();
    let s = KafkaSettings::new(cluster.bootstrap_servers());
    let t=Instant::now();
    eprintln!("{:?} {:?}", lane_facts(&s, "g", &[Topic::new("orders")]).await, t.elapsed());
    let mut m = Member::start(&s, "g", &Topic::new("orders"));
    m.until(|m| m.owns(0)).await; eprintln!("announced {:?}", t.elapsed());
    eprintln!("{:?}", m.arrival(0));
    m.control.stop();
    eprintln!("{:?}", group_members(&s, "g").await);
}
