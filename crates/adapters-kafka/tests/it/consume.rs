//! Delivery and commits of one member.

use std::time::{Duration, Instant};

use bytes::Bytes;
use core_delivery::ports::{RecordStream, StreamEvent};
use core_delivery::record::{Epoch, Header, Offset, Topic};
use rdkafka::message::{Header as ClientHeader, OwnedHeaders};

use adapters_kafka::{KafkaSettings, KafkaStream};

use crate::broker::{
    LIMIT, Transactions, brokers, committed, committed_becomes, numbers, produce, produce_with_headers, settings,
    topic, unique,
};
use crate::member::{Member, position};
use crate::raw;

#[tokio::test]
async fn records_of_a_lane_arrive_in_order_with_their_headers() {
    let (topic, group) = (topic("order", 1).await, unique("group"));
    let headers = OwnedHeaders::new()
        .insert(ClientHeader { key: "trace", value: Some("abc") })
        .insert(ClientHeader { key: "empty", value: Some("") })
        .insert(ClientHeader::<&str> { key: "null", value: None });
    produce_with_headers(&topic, headers).await;
    produce(&topic, 0, numbers(0..50)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 51).await;

    let records = member.records.values().next().expect("one lane");
    let first = &records[0];
    assert_eq!(first.key, Some(Bytes::from_static(b"k")));
    assert_eq!(first.payload, Some(Bytes::from_static(b"p")));
    assert!(first.timestamp.is_some());
    let header = |key: &str, value| Header { key: key.into(), value };
    assert_eq!(
        first.headers,
        [header("trace", Some(Bytes::from_static(b"abc"))), header("empty", Some(Bytes::new())), header("null", None)]
    );
    assert!(records.iter().map(|r| r.offset).eq((0..51).map(Offset)));
    let expected: Vec<String> = numbers(0..50).collect();
    assert_eq!(member.payloads(0)[1..], expected);
    member.stop().await;
}

#[tokio::test]
async fn a_header_key_that_is_not_utf8_is_counted() {
    let (topic, group) = (topic("headers", 1).await, unique("group"));
    let (bad, good): (&[u8], &[u8]) = (b"bad\xff", b"good");
    raw::produce_with_raw_headers(&topic, &[(bad, "x"), (good, "y")]);
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 1).await;
    let record = &member.records.values().next().expect("one lane")[0];
    assert_eq!(record.unreadable_headers, 1);
    assert_eq!(record.headers, [Header { key: "good".into(), value: Some(Bytes::from_static(b"y")) }]);
    member.stop().await;
}

#[tokio::test]
async fn a_committed_position_survives_a_restart_of_the_stream() {
    let (topic, group) = (topic("restart", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    member.settle(0, 6);
    committed_becomes(&group, &topic, 0, 6).await;
    member.stop().await;

    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 4).await;
    assert_eq!(member.payloads(0), ["6", "7", "8", "9"]);
    member.stop().await;
}

/// D-2.
#[tokio::test]
async fn nothing_beyond_the_reported_progress_is_committed() {
    let (topic, group) = (topic("progress", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    member.stop().await;
    assert_eq!(committed(&group, &topic, 0).await, None);

    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    member.settle(0, 3);
    // A wrong report, past all that was delivered, changes nothing.
    member.control.progress(&member.lane(0), position(1_000));
    member.stop().await;
    assert_eq!(committed(&group, &topic, 0).await, Some(3));
}

/// D-4 and D-5.
#[tokio::test]
async fn a_report_that_goes_back_or_is_of_another_epoch_changes_nothing() {
    let (topic, group) = (topic("epoch", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    member.settle(0, 5);
    committed_becomes(&group, &topic, 0, 5).await;
    member.control.progress(&member.lane(0), position(2));
    let mut older = member.lane(0);
    older.epoch = Epoch(older.epoch.0 - 1);
    member.control.progress(&older, position(9));
    member.stop().await;
    assert_eq!(committed(&group, &topic, 0).await, Some(5));
}

#[tokio::test]
async fn stop_ends_the_stream_and_the_groups_offset_is_the_position() {
    let (topic, group) = (topic("stop", 3).await, unique("group"));
    for partition in 0..3 {
        produce(&topic, partition, numbers(0..20)).await;
    }
    let mut settings = settings();
    settings.commit_interval = Duration::from_secs(60);
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.all() == 60).await;
    member.settle_all();
    member.stop().await;
    assert_eq!(member.revoked.len(), 3, "each lane is drained");
    assert!(member.stream.next().await.is_none());
    for partition in 0..3 {
        assert_eq!(committed(&group, &topic, partition).await, Some(20));
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_leaves_its_lanes_and_what_was_settled() {
    let (topic, group) = (topic("dropped", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..5)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 5).await;
    member.settle(0, 2);
    drop(member);
    let mut next = Member::start(&settings(), &group, &topic);
    next.until(|m| m.count(0) == 3).await;
    assert_eq!(next.payloads(0), ["2", "3", "4"]);
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_reaches_zero_behind_transaction_markers() {
    let (topic, group) = (topic("transactions", 1).await, unique("group"));
    let transactions = Transactions::new(&topic);
    transactions.write(3, true).await;
    transactions.write(2, false).await;

    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 3).await;
    assert_eq!(committed(&group, &topic, 0).await, None, "unsettled records hold the position");
    member.settle_all();
    // Three records, a marker, two aborted records, a marker.
    committed_becomes(&group, &topic, 0, 7).await;
    transactions.write(1, true).await;
    member.until(|m| m.count(0) == 4).await;
    member.settle_all();
    committed_becomes(&group, &topic, 0, 9).await;
    member.stop().await;
}

#[tokio::test]
async fn an_unreachable_broker_is_told_by_the_health_and_does_not_end_the_stream() {
    let settings = KafkaSettings::new("127.0.0.1:1");
    let topic = Topic::new("orders");
    let (mut stream, control) = KafkaStream::start(&settings, "billing", &[topic]).expect("starts");
    let health = stream.health();
    let deadline = Instant::now() + LIMIT;
    while health.trouble().is_none() {
        assert!(Instant::now() < deadline, "no trouble told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    control.stop();
    assert!(tokio::time::timeout(LIMIT, stream.next()).await.expect("ends").is_none());
    assert!(brokers().contains(':'));
}

#[tokio::test]
async fn a_topic_that_is_made_later_is_consumed() {
    let group = unique("group");
    let existing = topic("early", 1).await;
    let settings = settings();
    let late = Topic::new(format!("{existing}-late"));
    let mut fast = settings.clone();
    fast.properties.push(("topic.metadata.refresh.interval.ms".into(), "500".into()));
    let mut member = Member::start(&fast, &group, &late);
    let trouble = member.stream.health();
    let deadline = Instant::now() + LIMIT;
    while trouble.trouble().is_none() {
        assert!(Instant::now() < deadline, "the missing topic is not told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    crate::broker::create(&late, 1).await;
    produce(&late, 0, numbers(0..1)).await;
    member.until(|m| m.count(0) == 1).await;
    member.stop().await;
}

#[tokio::test]
async fn a_session_timeout_that_the_broker_refuses_fails_the_stream_with_what_to_do() {
    let (topic, group) = (topic("session", 1).await, unique("group"));
    let mut settings = settings();
    settings.session_timeout = Duration::from_secs(3_600);
    settings.properties.push(("max.poll.interval.ms".into(), "3600000".into()));
    let (mut stream, _control) = KafkaStream::start(&settings, &group, &[topic]).expect("starts");
    let event = tokio::time::timeout(LIMIT, stream.next()).await.expect("an event");
    let Some(StreamEvent::Failed(error)) = event else { panic!("{event:?}") };
    assert!(error.to_string().contains("group.max.session.timeout.ms"), "{error}");
    assert!(tokio::time::timeout(LIMIT, stream.next()).await.expect("ends").is_none());
}
