//! Lanes that move between members, under each protocol and assignor by which members can share them.

use std::time::{Duration, Instant};

use adapters_kafka::{KafkaSettings, KafkaStream, group_members};
use core_delivery::ports::{RecordStream, StreamEvent};
use core_delivery::record::{Offset, Topic};

use crate::broker::{LIMIT, committed, committed_becomes, numbers, produce, settings, topic, unique};
use crate::member::{Member, position};

/// How the members of a group share its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Cooperative,
    Eager,
    Static,
    Broker,
}

impl Sharing {
    /// For the member with this number.
    fn settings(self, number: usize) -> KafkaSettings {
        let mut settings = settings();
        let mut set = |key: &str, value: String| settings.properties.push((key.to_owned(), value));
        match self {
            Self::Cooperative => {}
            Self::Eager => set("partition.assignment.strategy", "range,roundrobin".to_owned()),
            Self::Static => set("group.instance.id", format!("member-{number}")),
            Self::Broker => set("group.protocol", "consumer".to_owned()),
        }
        settings
    }

    /// Whether everything is given up at a rebalance, and not only what moves.
    fn gives_up_all(self) -> bool {
        self == Self::Eager
    }
}

/// Two lanes with ten records each, of which the first member has settled two.
async fn two_lanes(sharing: Sharing, settings: &KafkaSettings) -> (Topic, String, Member) {
    let (topic, group) = (topic("sharing", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..10)).await;
    }
    let mut first = Member::start(settings, &group, &topic);
    first.until(|m| m.all() == 20).await;
    let members = group_members(settings, &group).await.expect("the group is described");
    assert_eq!(members, 1, "{sharing:?}: members of either protocol are counted");
    first.settle(0, 2);
    first.settle(1, 2);
    (topic, group, first)
}

async fn what_is_given_up_is_drained_and_committed(sharing: Sharing) {
    let mut slow = sharing.settings(1);
    slow.commit_interval = Duration::from_secs(60);
    let (topic, group, mut first) = two_lanes(sharing, &slow).await;
    let mut second = Member::start(&sharing.settings(2), &group, &topic);
    let given_up = if sharing.gives_up_all() { 2 } else { 1 };
    first.until(|m| m.revoked.len() == given_up).await;
    assert!(first.lost.is_empty(), "they are waited for");
    let moved = first.revoked.clone();
    for assignment in &moved {
        let partition = assignment.lane.partition;
        assert_eq!(committed(&group, &topic, partition).await, None);
        // The running unit ends now: what it settles is committed before the lane goes.
        first.settle(partition, 7);
        first.control.released(assignment);
    }
    first.until(|m| moved.iter().all(|assignment| m.lost.contains(assignment))).await;
    second.until(|m| m.all() == 3).await;
    let theirs = second.owned.keys().next().expect("it owns one").partition;
    assert_eq!(second.payloads(theirs), ["7", "8", "9"]);
    assert_eq!(committed(&group, &topic, theirs).await, Some(7));
    let ours = 1 - theirs;
    if sharing.gives_up_all() {
        first.until(|m| m.owns(ours) && m.count(ours) == 3).await;
        assert_eq!(first.payloads(ours), ["7", "8", "9"], "it comes back, from where it was committed");
        let before = moved.iter().find(|assignment| assignment.lane.partition == ours).expect("it was given up");
        assert!(first.lane(ours).epoch > before.epoch);
    } else {
        assert!(first.owns(ours), "the other lane never moved");
        assert_eq!(first.count(ours), 10);
    }
    assert!(!first.owns(theirs) && !second.owns(ours), "each lane has one owner");
    second.stop().await;
    first.stop().await;
}

async fn what_is_not_released_in_time_has_no_verdict(sharing: Sharing) {
    let mut short = sharing.settings(1);
    short.drain_limit = Duration::from_millis(300);
    let (topic, group, mut first) = two_lanes(sharing, &short).await;
    let mut second = Member::start(&sharing.settings(2), &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let asked = Instant::now();
    first.until(|m| !m.lost.is_empty()).await;
    assert!(asked.elapsed() < Duration::from_secs(5));
    // Too late: the lanes are others'. D-5.
    for assignment in first.lost.clone() {
        first.control.progress(&assignment, position(9));
        first.control.released(&assignment);
    }
    second.until(|m| m.all() == 8).await;
    let theirs = second.owned.keys().next().expect("it owns one").partition;
    assert_eq!(second.records[&second.lane(theirs).lane][0].offset, Offset(2));
    second.stop().await;
    first.stop().await;
    assert_eq!(committed(&group, &topic, theirs).await, Some(2));
}

async fn a_lane_that_comes_back_has_another_epoch(sharing: Sharing) {
    let (topic, group, mut first) = two_lanes(sharing, &sharing.settings(1)).await;
    committed_becomes(&group, &topic, 0, 2).await;
    committed_becomes(&group, &topic, 1, 2).await;
    let mut second = Member::start(&sharing.settings(2), &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    first.for_a_while(Duration::from_millis(1)).await;
    let old = first.revoked.clone();
    old.iter().for_each(|assignment| first.control.released(assignment));
    first.until(|m| old.iter().all(|assignment| m.lost.contains(assignment))).await;
    // With eager assignors all of them are revoked, one after the other.
    let rest: Vec<_> = first.revoked.iter().filter(|assignment| !old.contains(assignment)).cloned().collect();
    rest.iter().for_each(|assignment| first.control.released(assignment));
    second.until(|m| m.all() == 8).await;
    let theirs = second.owned.keys().next().expect("it owns one").partition;
    second.settle(theirs, 2);
    second.stop().await;
    let before = first.lost.iter().find(|assignment| assignment.lane.partition == theirs).expect("it went").clone();
    // An eager member gives up its other lane once more.
    let mut released = first.revoked.len();
    let deadline = Instant::now() + LIMIT;
    while !(first.owns(theirs) && first.count(theirs) == 6) {
        assert!(Instant::now() < deadline, "it does not come back");
        first.for_a_while(Duration::from_millis(20)).await;
        for assignment in &first.revoked[released..] {
            first.control.released(assignment);
        }
        released = first.revoked.len();
    }
    assert!(first.lane(theirs).epoch > before.epoch);
    first.control.progress(&before, position(10));
    first.stop().await;
    assert_eq!(committed(&group, &topic, theirs).await, Some(4));
}

macro_rules! shared_by {
    ($sharing:ident as $name:ident) => {
        mod $name {
            use super::Sharing;

            #[tokio::test]
            async fn what_is_given_up_is_drained_and_committed() {
                super::what_is_given_up_is_drained_and_committed(Sharing::$sharing).await;
            }

            #[tokio::test]
            async fn what_is_not_released_in_time_has_no_verdict() {
                super::what_is_not_released_in_time_has_no_verdict(Sharing::$sharing).await;
            }
        }
    };
}

shared_by!(Cooperative as cooperative);
shared_by!(Eager as eager);
shared_by!(Static as named);
shared_by!(Broker as by_the_broker);

#[tokio::test]
async fn a_lane_that_comes_back_has_another_epoch_under_eager_assignors() {
    a_lane_that_comes_back_has_another_epoch(Sharing::Eager).await;
}

#[tokio::test]
async fn a_lane_that_comes_back_has_another_epoch_where_the_broker_assigns() {
    a_lane_that_comes_back_has_another_epoch(Sharing::Broker).await;
}

#[tokio::test]
async fn a_member_whose_name_another_one_takes_fails_and_says_what_to_do() {
    let (topic, group) = (topic("twin", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..3)).await;
    let mut first = Member::start(&Sharing::Static.settings(1), &group, &topic);
    first.until(|m| m.count(0) == 3).await;
    let (mut twin, control) =
        KafkaStream::start(&Sharing::Static.settings(1), &group, std::slice::from_ref(&topic)).expect("starts");
    let reason = tokio::time::timeout(LIMIT, async {
        loop {
            match first.stream.next().await {
                Some(StreamEvent::Failed(error)) => return error.to_string(),
                Some(StreamEvent::Revoked(assignment)) => first.control.released(&assignment),
                Some(_) => {}
                None => panic!("the stream ended without a reason"),
            }
        }
    });
    let reason = reason.await.expect("it fails within the limit");
    assert!(reason.contains("group.instance.id"), "{reason}");
    control.stop();
    while let Some(event) = tokio::time::timeout(LIMIT, twin.next()).await.expect("ends") {
        if let StreamEvent::Revoked(assignment) = event {
            control.released(&assignment);
        }
    }
}
