//! Lanes that move between members.

use std::time::{Duration, Instant};

use core_delivery::record::Offset;

use crate::broker::{committed, committed_becomes, numbers, produce, settings, topic, unique};
use crate::member::{Member, position};

#[tokio::test]
async fn a_revoked_lane_is_waited_for_and_commits_what_was_settled() {
    let (topic, group) = (topic("revoke", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..10)).await;
    }
    let mut slow = settings();
    slow.commit_interval = Duration::from_secs(60);
    let mut first = Member::start(&slow, &group, &topic);
    first.until(|m| m.all() == 20).await;
    first.settle(0, 2);
    first.settle(1, 2);

    let mut second = Member::start(&slow, &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    assert_eq!(first.revoked.len(), 1, "only what moves is revoked");
    let moved = first.revoked[0].clone();
    let partition = moved.lane.partition;
    assert!(first.lost.is_empty());
    assert_eq!(committed(&group, &topic, partition).await, None);
    // The running unit ends now: what it settles is committed before the lane goes.
    first.settle(partition, 7);
    first.control.released(&moved);
    first.until(|m| m.lost == [moved.clone()]).await;
    second.until(|m| m.count(partition) == 3).await;
    assert_eq!(second.payloads(partition), ["7", "8", "9"]);
    assert_eq!(committed(&group, &topic, partition).await, Some(7));

    let kept = 1 - partition;
    assert!(first.owns(kept) && !second.owns(kept), "the other lane never moved");
    assert_eq!(first.count(kept), 10);
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_lane_that_is_not_released_in_time_is_given_away_without_what_has_no_verdict() {
    let (topic, group) = (topic("drain", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..5)).await;
    }
    let mut short = settings();
    short.drain_limit = Duration::from_millis(300);
    let mut first = Member::start(&short, &group, &topic);
    first.until(|m| m.all() == 10).await;
    first.settle(0, 2);
    first.settle(1, 2);
    let mut second = Member::start(&short, &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let asked = Instant::now();
    first.until(|m| !m.lost.is_empty()).await;
    assert!(asked.elapsed() < Duration::from_secs(5));
    let moved = first.lost[0].clone();
    let partition = moved.lane.partition;
    // Too late: the lane is another's.
    first.control.progress(&moved, position(5));
    first.control.released(&moved);
    second.until(|m| m.count(partition) == 3).await;
    assert_eq!(second.payloads(partition), ["2", "3", "4"]);
    second.stop().await;
    first.stop().await;
    assert_eq!(committed(&group, &topic, partition).await, Some(2));
}

/// D-5.
#[tokio::test]
async fn a_lane_that_comes_back_has_a_new_epoch_and_reports_of_the_old_one_change_nothing() {
    let (topic, group) = (topic("again", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..10)).await;
    }
    let mut first = Member::start(&settings(), &group, &topic);
    first.until(|m| m.all() == 20).await;
    let mut second = Member::start(&settings(), &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let old = first.revoked[0].clone();
    let partition = old.lane.partition;
    first.control.released(&old);
    first.until(|m| !m.lost.is_empty()).await;
    second.until(|m| m.count(partition) == 10).await;
    second.settle(partition, 4);
    second.stop().await;

    first.until(|m| m.owns(partition) && m.count(partition) == 6).await;
    assert!(first.lane(partition).epoch > old.epoch);
    assert_eq!(first.records[&old.lane][0].offset, Offset(4));
    first.control.progress(&old, position(10));
    first.stop().await;
    assert_eq!(committed(&group, &topic, partition).await, Some(4));
}

#[tokio::test]
async fn a_second_member_takes_over_from_the_committed_position_when_the_first_one_stops() {
    let (topic, group) = (topic("takeover", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..10)).await;
    let mut first = Member::start(&settings(), &group, &topic);
    first.until(|m| m.count(0) == 10).await;
    first.settle(0, 8);
    committed_becomes(&group, &topic, 0, 8).await;
    let mut second = Member::start(&settings(), &group, &topic);
    first.stop().await;
    second.until(|m| m.count(0) == 2).await;
    assert_eq!(second.payloads(0), ["8", "9"]);
    second.stop().await;
}

/// O3: everything of both lanes is seen and next to nothing is settled, while a commit is due each millisecond and lanes
/// move with their records on the way: only what was settled is ever committed, and the next owner gets all the rest.
#[tokio::test]
async fn what_was_seen_and_not_settled_is_not_committed_when_a_lane_moves() {
    let (topic, group) = (topic("seen", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..100)).await;
    }
    let mut eager = settings();
    eager.commit_interval = Duration::from_millis(1);
    eager.drain_limit = Duration::from_millis(500);
    let mut first = Member::start(&eager, &group, &topic);
    first.until(|m| m.all() == 200).await;
    let mut settled = [3, 5];
    let mut written = 100;
    for partition in 0..2 {
        first.settle(partition, settled[usize::try_from(partition).expect("small")]);
    }
    // More commits than one, the regular repeat of all positions among them.
    first.for_a_while(Duration::from_secs(6)).await;
    for _ in 0..3 {
        let mut second = Member::start(&eager, &group, &topic);
        let gone = first.lost.len();
        // The handler is held: nothing is released. Meanwhile more arrives, which is seen and not handed on.
        while first.lost.len() == gone {
            for partition in 0..2 {
                produce(&topic, partition, numbers(written..written + 10)).await;
            }
            written += 10;
            first.for_a_while(Duration::from_millis(1)).await;
        }
        let partition = first.lost[gone].lane.partition;
        let at = usize::try_from(partition).expect("small");
        second.until(|m| m.count(partition) == written - settled[at]).await;
        assert!(second.payloads(partition).into_iter().eq(numbers(settled[at]..written)), "all that was not settled");
        for partition in 0..2 {
            let at = settled[usize::try_from(partition).expect("small")];
            assert_eq!(committed(&group, &topic, partition).await, Some(i64::try_from(at).expect("small")));
        }
        second.settle(partition, 2);
        settled[at] += 2;
        second.stop().await;
        first.until(|m| m.owns(partition) && m.count(partition) == written - settled[at]).await;
        assert!(first.payloads(partition).into_iter().eq(numbers(settled[at]..written)), "and so it comes back");
    }
    first.stop().await;
    for partition in 0..2 {
        let at = settled[usize::try_from(partition).expect("small")];
        assert_eq!(committed(&group, &topic, partition).await, Some(i64::try_from(at).expect("small")));
    }
}
