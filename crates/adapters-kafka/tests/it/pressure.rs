//! What is delivered and not settled is bounded, and the member stays in its group all the same.

use std::time::Duration;

use crate::broker::{numbers, produce, settings, topic, unique};
use crate::member::Member;

/// One wake reads at most this much beyond the limit.
const BURST: usize = 1_000;

#[tokio::test]
async fn a_lane_without_progress_is_held_at_its_limit_and_the_member_stays() {
    let (topic, group) = (topic("limit", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..5_000)).await;
    let mut settings = settings();
    settings.lane_records_max = 100;
    settings.session_timeout = Duration::from_secs(2);
    settings.drain_limit = Duration::from_secs(1);
    // A member that stopped polling would be put out of the group after this time.
    settings.properties.push(("max.poll.interval.ms".into(), "2000".into()));
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 100).await;
    member.for_a_while(Duration::from_secs(4)).await;
    assert!(member.count(0) <= 100 + BURST, "{} records were delivered", member.count(0));
    assert!(member.lost.is_empty() && member.revoked.is_empty());

    while member.count(0) < 5_000 {
        member.settle_all();
        assert!(member.step().await);
    }
    let expected: Vec<String> = numbers(0..5_000).collect();
    assert_eq!(member.payloads(0), expected);
    assert!(member.lost.is_empty(), "pausing repeats nothing");
    member.stop().await;
}

#[tokio::test]
async fn bytes_have_a_limit_too() {
    let (topic, group) = (topic("bytes", 1).await, unique("group"));
    produce(&topic, 0, (0..200).map(|_| "x".repeat(100_000))).await;
    let mut settings = settings();
    settings.lane_bytes_max = 1_000_000;
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 10).await;
    member.for_a_while(Duration::from_secs(1)).await;
    // The limit and one burst of 4 MiB.
    assert!(member.count(0) <= 53, "{} records were delivered", member.count(0));
    while member.count(0) < 200 {
        member.settle_all();
        assert!(member.step().await);
    }
    member.stop().await;
}

#[tokio::test]
async fn a_full_lane_does_not_hold_up_another_one() {
    let (topic, group) = (topic("other", 2).await, unique("group"));
    produce(&topic, 0, numbers(0..5_000)).await;
    let mut settings = settings();
    settings.lane_records_max = 10;
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 10).await;
    produce(&topic, 1, numbers(0..3)).await;
    member.until(|m| m.count(1) == 3).await;
    member.stop().await;
}

#[tokio::test]
async fn a_lane_that_was_paused_when_it_left_is_read_when_it_comes_back() {
    let (topic, group) = (topic("unpause", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..3_000)).await;
    }
    let mut settings = settings();
    settings.lane_records_max = 10;
    let mut first = Member::start(&settings, &group, &topic);
    first.until(|m| m.count(0) >= 10 && m.count(1) >= 10).await;
    let mut second = Member::start(&settings, &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let moved = first.revoked[0].clone();
    first.control.released(&moved);
    let partition = moved.lane.partition;
    second.until(|m| m.count(partition) >= 10).await;
    // The lane that stayed is still paused.
    let kept = 1 - partition;
    assert!(first.count(kept) <= 10 + BURST);
    second.stop().await;
    first.until(|m| m.owns(partition) && m.count(partition) >= 10).await;
    while first.count(0) < 3_000 || first.count(1) < 3_000 {
        first.settle_all();
        assert!(first.step().await);
    }
    let expected: Vec<String> = numbers(0..3_000).collect();
    assert_eq!(first.payloads(0), expected);
    assert_eq!(first.payloads(1), expected);
    first.stop().await;
}
