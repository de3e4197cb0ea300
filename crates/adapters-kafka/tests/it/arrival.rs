//! Where lanes start: what is told at their assignment, and what the kernel makes of it.

use std::time::{Duration, Instant};

use adapters_kafka::{InspectError, KafkaSettings, KafkaStream, lane_facts};
use core_delivery::ports::{Progress, RecordStream};
use core_delivery::record::{Committable, Offset, Topic};

use crate::broker::{
    LIMIT, Transactions, committed, committed_becomes, create, delete, delete_records, numbers, produce, settings,
    topic, unique,
};
use crate::member::{Member, position};

/// Long enough for records to arrive, if they came.
const A_WHILE: Duration = Duration::from_millis(1_500);

fn payloads(range: std::ops::Range<usize>) -> Vec<String> {
    numbers(range).collect()
}

async fn idle(group: &str, topic: &Topic) -> Member {
    let mut member = Member::start(&settings(), group, topic);
    member.starts = false;
    member.until(|m| m.owns(0)).await;
    member
}

/// Commits a position for the group, by a member that leaves.
async fn leave_at(group: &str, topic: &Topic, settled: usize) {
    let mut member = Member::start(&settings(), group, topic);
    member.until(|m| m.count(0) >= settled).await;
    member.settle(0, settled);
    member.stop().await;
}

#[tokio::test]
async fn nothing_is_delivered_or_committed_before_the_start() {
    let (topic, group) = (topic("unstarted", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut member = idle(&group, &topic).await;
    member.control.progress(&member.lane(0), position(5));
    member.for_a_while(A_WHILE).await;
    produce(&topic, 0, numbers(10..20)).await;
    member.for_a_while(A_WHILE).await;
    assert_eq!(member.count(0), 0);
    assert_eq!(committed(&group, &topic, 0).await, None);

    member.begin(0, 0);
    member.until(|m| m.count(0) == 20).await;
    assert_eq!(member.payloads(0), payloads(0..20));
    member.stop().await;
    assert_eq!(committed(&group, &topic, 0).await, None);
}

#[tokio::test]
async fn a_lane_starts_below_the_committed_offset_which_goes_back_with_its_progress() {
    let (topic, group) = (topic("below", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    leave_at(&group, &topic, 8).await;
    let mut member = idle(&group, &topic).await;
    assert_eq!(member.arrival(0).committed, Some(Committable(8)));
    member.begin(0, 3);
    member.until(|m| m.count(0) == 7).await;
    assert_eq!(member.payloads(0), payloads(3..10));
    assert_eq!(committed(&group, &topic, 0).await, Some(8), "nothing is settled yet");
    member.settle(0, 2);
    committed_becomes(&group, &topic, 0, 5).await;
    member.settle_all();
    committed_becomes(&group, &topic, 0, 10).await;
    member.stop().await;
}

#[tokio::test]
async fn a_lane_starts_above_the_committed_offset() {
    let (topic, group) = (topic("above", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    leave_at(&group, &topic, 2).await;
    let mut member = idle(&group, &topic).await;
    member.begin(0, 7);
    member.until(|m| m.count(0) == 3).await;
    assert_eq!(member.payloads(0), payloads(7..10));
    member.settle(0, 1);
    committed_becomes(&group, &topic, 0, 8).await;
    member.stop().await;
}

#[tokio::test]
async fn the_arrival_tells_the_committed_the_first_and_the_end_offset() {
    let (topic, group) = (topic("facts", 2).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    leave_at(&group, &topic, 6).await;
    delete_records(&topic, 0, 4).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.starts = false;
    member.until(|m| m.owns(0) && m.owns(1)).await;
    let (first, second) = (member.arrival(0).clone(), member.arrival(1).clone());
    assert_eq!((first.committed, first.first, first.end), (Some(Committable(6)), Committable(4), Committable(10)));
    assert_eq!((second.committed, second.first, second.end), (None, Committable(0), Committable(0)));
    assert_eq!(first.identity, second.identity);
    assert!(first.identity.cluster.len() > 4, "{:?}", first.identity);
    assert_eq!(first.identity.topic.len(), 22, "{:?}", first.identity);

    let facts = lane_facts(&settings(), &group, std::slice::from_ref(&topic)).await.expect("told");
    assert!(facts.iter().map(|facts| facts.arrival.clone()).eq([first, second]), "the same without a member");
    assert!(facts.iter().map(|facts| facts.lane.partition).eq([0, 1]));
    member.stop().await;
}

#[tokio::test]
async fn a_topic_that_is_made_anew_is_another_log() {
    let (topic, group) = (topic("anew", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let of_the_old = lane_facts(&settings(), &group, std::slice::from_ref(&topic)).await.expect("told").remove(0);
    delete(&topic).await;
    create(&topic, 1).await;
    produce(&topic, 0, numbers(0..3)).await;
    let mut member = idle(&group, &topic).await;
    let arrival = member.arrival(0).clone();
    assert_eq!(arrival.identity.cluster, of_the_old.arrival.identity.cluster);
    assert_ne!(arrival.identity.topic, of_the_old.arrival.identity.topic);
    assert_eq!((of_the_old.arrival.end, arrival.end), (Committable(10), Committable(3)));
    member.stop().await;
}

/// D-5.
#[tokio::test]
async fn a_restart_gives_a_new_epoch_and_delivers_again_from_where_it_is_told() {
    let (topic, group) = (topic("restarted", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut member = Member::start(&settings(), &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    member.settle(0, 6);
    committed_becomes(&group, &topic, 0, 6).await;
    member.starts = false;
    let old = member.lane(0);
    member.control.restart(&old);
    member.until(|m| m.lost == [old.clone()]).await;
    member.until(|m| m.owns(0)).await;
    assert!(member.lane(0).epoch > old.epoch);
    assert_eq!(member.arrival(0).committed, Some(Committable(6)), "it is asked anew");
    assert!(member.revoked.is_empty());
    // Words for the old epoch change nothing.
    member.control.start(&old, Committable(9));
    member.control.progress(&old, position(10));
    member.control.restart(&old);
    member.for_a_while(A_WHILE).await;
    assert_eq!(member.count(0), 0);
    assert_eq!(committed(&group, &topic, 0).await, Some(6));

    member.begin(0, 2);
    member.until(|m| m.count(0) == 8).await;
    assert_eq!(member.payloads(0), payloads(2..10));
    member.settle(0, 1);
    committed_becomes(&group, &topic, 0, 3).await;
    assert_eq!(member.lost.len(), 1);
    member.stop().await;
}

#[tokio::test]
async fn a_lane_that_is_full_can_be_restarted() {
    let (topic, group) = (topic("full", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..3_000)).await;
    let mut small = settings();
    small.lane_records_max = 10;
    let mut member = Member::start(&small, &group, &topic);
    member.until(|m| m.count(0) >= 10).await;
    member.for_a_while(Duration::from_millis(300)).await;
    member.control.restart(&member.lane(0));
    member.until(|m| !m.lost.is_empty()).await;
    member.until(|m| m.count(0) >= 10).await;
    while member.count(0) < 3_000 {
        member.settle_all();
        assert!(member.step().await);
    }
    assert_eq!(member.payloads(0), payloads(0..3_000));
    member.stop().await;
}

#[tokio::test]
async fn a_lane_that_is_revoked_before_its_start_is_drained_and_lost() {
    let (topic, group) = (topic("early", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..5)).await;
    }
    let mut first = Member::start(&settings(), &group, &topic);
    first.starts = false;
    first.until(|m| m.owns(0) && m.owns(1)).await;
    let mut second = Member::start(&settings(), &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let moved = first.revoked[0].clone();
    let partition = moved.lane.partition;
    // Too late: it is not read here any more.
    first.control.start(&moved, Committable(0));
    first.control.released(&moved);
    first.until(|m| m.lost == [moved.clone()]).await;
    second.until(|m| m.count(partition) == 5).await;
    assert_eq!(first.all(), 0);
    // The one that stayed can start after the rebalance as well.
    first.begin(1 - partition, 4);
    first.until(|m| m.all() == 1).await;
    assert_eq!(first.payloads(1 - partition), ["4"]);
    second.stop().await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_the_logs_and_the_lag_reaches_zero_where_only_markers_follow_the_start() {
    let (topic, group) = (topic("markers", 1).await, unique("group"));
    let transactions = Transactions::new(&topic);
    transactions.write(2, true).await;
    transactions.write(2, false).await;
    transactions.begin(1).await;
    let mut member = idle(&group, &topic).await;
    // Two records, a marker, two aborted records, a marker, a record of an open transaction.
    assert_eq!(member.arrival(0).end, Committable(7), "not where the open transaction begins");
    transactions.end(false).await;
    member.begin(0, 2);
    // As the kernel does where the store holds the start: before that, Kafka's must not be the only position.
    member.control.progress(&member.lane(0), Progress { position: Committable(2), records: 0, bytes: 0 });
    committed_becomes(&group, &topic, 0, 8).await;
    assert_eq!(member.count(0), 0);
    member.stop().await;
    let mut member = idle(&group, &topic).await;
    assert_eq!((member.arrival(0).committed, member.arrival(0).end), (Some(Committable(8)), Committable(8)));
    member.begin(0, 8);
    produce(&topic, 0, numbers(0..1)).await;
    member.until(|m| m.count(0) == 1).await;
    assert_eq!(member.records.values().next().expect("one lane")[0].offset, Offset(8));
    member.stop().await;
}

#[tokio::test]
async fn a_lane_that_jumps_back_is_lost_and_told_anew() {
    let (topic, group) = (topic("jump", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut fast = settings();
    fast.properties.push(("topic.metadata.refresh.interval.ms".into(), "300".into()));
    let mut member = Member::start(&fast, &group, &topic);
    member.until(|m| m.count(0) == 10).await;
    let before = (member.lane(0), member.arrival(0).identity.clone());
    member.settle_all();
    committed_becomes(&group, &topic, 0, 10).await;
    member.starts = false;
    delete(&topic).await;
    create(&topic, 1).await;
    produce(&topic, 0, numbers(0..3)).await;
    let deadline = Instant::now() + LIMIT;
    while !member.owns(0) || member.lane(0) == before.0 {
        assert!(Instant::now() < deadline, "the lane is not told anew");
        assert!(member.step().await);
        let revoked = member.revoked.clone();
        revoked.iter().for_each(|assignment| member.control.released(assignment));
    }
    assert_ne!(member.arrival(0).identity, before.1);
    member.begin(0, 0);
    member.until(|m| m.count(0) == 3).await;
    assert_eq!(member.payloads(0), payloads(0..3));
    member.stop().await;
}

#[tokio::test]
async fn facts_of_lanes_are_not_guessed() {
    let error = lane_facts(&settings(), "billing", &[Topic::new(unique("none"))]).await;
    assert!(matches!(error, Err(InspectError::NoTopic { .. })), "{error:?}");
    let away = KafkaSettings::new("127.0.0.1:1");
    let error = lane_facts(&away, "billing", &[Topic::new("orders")]).await;
    let Err(InspectError::Unknown { reason, .. }) = error else { panic!("{error:?}") };
    assert!(reason.to_lowercase().contains("refused"), "{reason}");
    let (mut stream, control) = KafkaStream::start(&away, "billing", &[Topic::new("orders")]).expect("starts");
    control.stop();
    assert!(tokio::time::timeout(LIMIT, stream.next()).await.expect("ends").is_none());
}
