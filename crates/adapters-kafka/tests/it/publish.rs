//! The publisher's promises.

use adapters_kafka::{KafkaPublisher, KafkaSettings};
use bytes::Bytes;
use core_delivery::ports::{PublishError, Publisher, error_chain};
use core_delivery::record::{Header, OutgoingRecord, Topic};

use crate::broker::{brokers, settings, topic, topic_with, unique};
use crate::member::Member;

fn outgoing(topic: &Topic, partition: i32, payload: Option<Bytes>) -> OutgoingRecord {
    let headers = vec![
        Header { key: "delivery-group".into(), value: Some(Bytes::from_static(b"billing")) },
        Header { key: "null".into(), value: None },
    ];
    OutgoingRecord { topic: topic.clone(), partition, key: Some(Bytes::from_static(b"order-1")), payload, headers }
}

#[tokio::test]
async fn a_published_record_is_there_byte_for_byte_in_the_wanted_partition() {
    let topic = topic("publish", 3).await;
    let publisher = KafkaPublisher::new(&settings()).expect("made");
    let payload = Bytes::from_static(b"{\"a\": 1}\xff\0");
    let records =
        [outgoing(&topic, 2, Some(payload)), outgoing(&topic, 2, None), outgoing(&topic, 2, Some(Bytes::new()))];
    for record in &records {
        publisher.publish(record).await.expect("acknowledged");
    }
    let mut member = Member::start(&settings(), &unique("group"), &topic);
    member.until(|m| m.all() == 3).await;
    assert_eq!(member.count(2), 3);
    let arrived = member.records.iter().find(|(lane, _)| lane.partition == 2).expect("read").1;
    for (sent, arrived) in records.iter().zip(arrived) {
        assert_eq!((&sent.key, &sent.payload, &sent.headers), (&arrived.key, &arrived.payload, &arrived.headers));
    }
    member.stop().await;
}

#[tokio::test]
async fn a_partition_that_the_topic_lacks_is_chosen_by_key() {
    let topic = topic("bykey", 2).await;
    let publisher = KafkaPublisher::new(&settings()).expect("made");
    for _ in 0..5 {
        publisher.publish(&outgoing(&topic, 7, Some(Bytes::from_static(b"x")))).await.expect("acknowledged");
    }
    let mut member = Member::start(&settings(), &unique("group"), &topic);
    member.until(|m| m.all() == 5).await;
    assert!(member.count(0) == 5 || member.count(1) == 5, "one key, one partition");
    member.stop().await;
}

#[tokio::test]
async fn a_record_that_the_broker_finds_too_large_is_told_apart() {
    let small = topic_with("small", 1, &[("max.message.bytes", "20000")]).await;
    let publisher = KafkaPublisher::new(&settings()).expect("made");
    let large = outgoing(&small, 0, Some(Bytes::from(vec![b'x'; 30_000])));
    let error = publisher.publish(&large).await.expect_err("too large");
    assert!(matches!(&error, PublishError::TooLarge { topic } if topic == small.as_str()), "{error:?}");
    publisher.publish(&outgoing(&small, 0, Some(Bytes::from(vec![b'x'; 10_000])))).await.expect("acknowledged");

    let mut settings = settings();
    settings.message_bytes_max = 5_000;
    let publisher = KafkaPublisher::new(&settings).expect("made");
    let record = outgoing(&small, 0, Some(Bytes::from(vec![b'x'; 10_000])));
    assert!(matches!(publisher.publish(&record).await, Err(PublishError::TooLarge { .. })), "the client's own limit");
}

#[tokio::test]
async fn many_small_records_at_once_are_never_too_large_together() {
    let topic = topic_with("batches", 1, &[("max.message.bytes", "70000")]).await;
    let publisher = std::sync::Arc::new(KafkaPublisher::new(&settings()).expect("made"));
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (publisher, topic) = (publisher.clone(), topic.clone());
            tokio::spawn(
                async move { publisher.publish(&outgoing(&topic, 0, Some(Bytes::from(vec![b'x'; 5_000])))).await },
            )
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("acknowledged");
    }
}

#[tokio::test]
async fn a_missing_topic_is_unavailable() {
    let publisher = KafkaPublisher::new(&settings()).expect("made");
    let missing = Topic::new(unique("missing"));
    let error = publisher.publish(&outgoing(&missing, 0, None)).await.expect_err("missing");
    assert!(matches!(&error, PublishError::Unavailable { topic, .. } if topic == missing.as_str()), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_broker_is_unavailable_with_the_clients_reason() {
    assert!(brokers().contains(':'));
    let publisher = KafkaPublisher::new(&KafkaSettings::new("127.0.0.1:1")).expect("made");
    let error = publisher.publish(&outgoing(&Topic::new("orders"), 0, None)).await.expect_err("unreachable");
    assert!(error_chain(&error).to_lowercase().contains("refused"), "{}", error_chain(&error));
    assert!(publisher.health().trouble().is_some());
}

#[tokio::test]
async fn with_the_broker_away_all_publishes_fail_together_not_one_after_the_other() {
    assert!(brokers().contains(':'));
    let publisher = std::sync::Arc::new(KafkaPublisher::new(&KafkaSettings::new("127.0.0.1:1")).expect("made"));
    let started = std::time::Instant::now();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let publisher = publisher.clone();
            tokio::spawn(async move { publisher.publish(&outgoing(&Topic::new("orders"), 0, None)).await })
        })
        .collect();
    for task in tasks {
        assert!(matches!(task.await.expect("no panic"), Err(PublishError::Unavailable { .. })));
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(15), "{:?}", started.elapsed());
}
