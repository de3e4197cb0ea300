//! The rules of the lane table; no broker is needed for them.

use std::slice::from_ref;

use core_delivery::record::{Committable, Topic};

use super::*;

fn table() -> LaneTable {
    LaneTable::new(LaneLimits { records: 4, bytes: 1_000 })
}

fn lane(partition: i32) -> LaneId {
    LaneId { topic: Topic::new("orders"), partition }
}

/// A lane that runs from an offset on.
fn running(table: &mut LaneTable, partition: i32, from: i64) -> Assignment {
    let owned = table.assign(lane(partition));
    assert!(table.announce(&owned) && table.start(&owned, from));
    table.started(&owned.lane);
    table.set_paused(&owned.lane, false);
    owned
}

fn progress(position: i64, records: usize) -> Progress {
    Progress { position: Committable(position), records, bytes: records * 10 }
}

#[test]
fn each_assignment_has_an_epoch_of_its_own() {
    let mut table = table();
    let first = table.assign(lane(0));
    table.remove(&first.lane);
    let second = table.assign(lane(0));
    assert!(second.epoch > first.epoch);
    assert_ne!(table.assign(lane(1)).epoch, second.epoch);
}

#[test]
fn a_position_never_goes_back_within_an_epoch() {
    let mut table = table();
    let owned = running(&mut table, 0, 0);
    assert_eq!(table.deliver(&owned, 0, 9, 10, 100), Delivery::Accepted);
    assert_eq!(table.progress(&owned, progress(7, 7)), Report::Counted);
    assert_eq!(table.progress(&owned, progress(3, 0)), Report::Counted);
    assert_eq!(table.position(&owned), Some(7));
}

#[test]
fn a_position_beyond_what_was_delivered_changes_nothing() {
    let mut table = table();
    let owned = running(&mut table, 0, 0);
    assert_eq!(table.progress(&owned, progress(1, 1)), Report::Impossible);
    table.deliver(&owned, 5, 9, 5, 50);
    assert_eq!(table.progress(&owned, progress(11, 5)), Report::Impossible);
    assert_eq!(table.positions(), []);
}

#[test]
fn a_report_of_an_older_epoch_changes_nothing() {
    let mut table = table();
    let old = running(&mut table, 0, 0);
    table.deliver(&old, 0, 3, 4, 40);
    let new = running(&mut table, 0, 0);
    table.deliver(&new, 0, 3, 4, 40);
    assert_eq!(table.progress(&old, progress(4, 4)), Report::Stale);
    table.released(&old);
    assert!(!table.are_released(&[new]));
    assert_eq!(table.moved(), []);
    assert_eq!(table.deliver(&old, 4, 4, 1, 10), Delivery::Stale);
}

#[test]
fn a_lane_is_paused_at_a_limit_and_resumed_at_half_of_it() {
    let mut table = table();
    let owned = running(&mut table, 0, 0);
    table.deliver(&owned, 0, 3, 4, 40);
    assert_eq!(table.flow(), Flow { pause: vec![lane(0)], resume: vec![] });
    table.set_paused(&lane(0), true);
    table.progress(&owned, progress(1, 1));
    assert_eq!(table.flow(), Flow::default());
    table.progress(&owned, progress(2, 1));
    assert_eq!(table.flow(), Flow { pause: vec![], resume: vec![lane(0)] });
    table.set_paused(&lane(0), false);
    table.deliver(&owned, 4, 4, 1, 2_000);
    assert_eq!(table.flow(), Flow { pause: vec![lane(0)], resume: vec![] }, "bytes have a limit too");
}

#[test]
fn only_moved_positions_are_sent_and_all_of_them_can_be_sent_again() {
    let mut table = table();
    let owned = running(&mut table, 0, 0);
    running(&mut table, 1, 0);
    table.deliver(&owned, 0, 1, 2, 20);
    table.progress(&owned, progress(1, 1));
    assert_eq!(table.moved(), [(lane(0), 1)]);
    table.set_sent(&lane(0), 1);
    assert_eq!(table.moved(), []);
    assert_eq!(table.positions(), [(lane(0), 1)]);
}

#[test]
fn the_position_follows_the_consumer_only_where_all_that_was_delivered_is_settled() {
    let mut table = table();
    let owned = running(&mut table, 0, 0);
    table.deliver(&owned, 0, 3, 4, 40);
    table.progress(&owned, progress(3, 3));
    table.reached(&lane(0), 6);
    assert_eq!(table.position(&owned), Some(3), "offset 3 has no verdict");
    table.progress(&owned, progress(4, 1));
    table.reached(&lane(0), 6);
    assert_eq!(table.position(&owned), Some(6));
    table.reached(&lane(0), 5);
    assert_eq!(table.position(&owned), Some(6));
}

#[test]
fn the_position_does_not_follow_the_consumer_before_the_start() {
    let mut table = table();
    let owned = table.assign(lane(0));
    table.reached(&lane(0), 100);
    assert!(table.announce(&owned) && table.start(&owned, 7));
    table.reached(&lane(0), 100);
    assert_eq!(table.positions(), []);
    table.started(&lane(0));
    table.reached(&lane(0), 7);
    assert_eq!(table.positions(), [], "nothing was passed");
    table.reached(&lane(0), 9);
    assert_eq!(table.positions(), [], "the kernel has not said that the store holds a position");
    table.progress(&owned, progress(7, 0));
    table.reached(&lane(0), 9);
    assert_eq!(table.positions(), [(lane(0), 9)], "only markers lie behind the start");
}

#[test]
fn nothing_is_delivered_or_reported_before_the_start() {
    let mut table = table();
    let owned = table.assign(lane(0));
    assert_eq!(table.running(&lane(0)), None);
    assert!(!table.start(&owned, 5), "the kernel was not told of it");
    assert!(table.announce(&owned) && !table.announce(&owned));
    assert_eq!(table.deliver(&owned, 0, 3, 4, 40), Delivery::Stale);
    assert_eq!(table.progress(&owned, progress(1, 1)), Report::Impossible);
    assert!(table.start(&owned, 5) && !table.start(&owned, 6));
    assert_eq!(table.starting(), [(lane(0), 5)]);
    assert_eq!(table.flow(), Flow::default(), "it stays paused, whatever room there is");
    table.started(&lane(0));
    assert_eq!(table.flow(), Flow { pause: vec![], resume: vec![lane(0)] });
    assert_eq!(table.running(&lane(0)), Some(owned.clone()));
    assert_eq!(table.progress(&owned, progress(4, 0)), Report::Counted);
    assert_eq!(table.positions(), [], "a position below the start is none (D-4)");
}

#[test]
fn a_lane_that_the_client_has_not_paused_is_paused_until_it_starts() {
    let mut table = table();
    table.assign(lane(0));
    table.set_paused(&lane(0), false);
    assert_eq!(table.flow(), Flow { pause: vec![lane(0)], resume: vec![] });
}

#[test]
fn a_lane_that_nobody_was_told_of_goes_in_silence() {
    let mut table = table();
    let (unknown, known) = (table.assign(lane(0)), table.assign(lane(1)));
    assert!(table.announce(&known));
    assert_eq!(table.to_drain(&[lane(0), lane(1)]), from_ref(&known));
    assert_eq!(table.remove(&unknown.lane), None);
    assert_eq!(table.remove(&known.lane), Some(known));
    assert!(table.is_empty());
}

#[test]
fn a_restart_gives_the_lane_a_new_epoch_and_forgets_its_positions() {
    let mut table = table();
    let old = running(&mut table, 0, 0);
    table.deliver(&old, 0, 3, 4, 40);
    table.progress(&old, progress(2, 2));
    assert!(table.restart(&old) && !table.restart(&Assignment { epoch: Epoch(99), ..old.clone() }));
    assert_eq!(table.positions(), []);
    assert_eq!((table.running(&lane(0)), table.to_drain(&[lane(0)])), (None, vec![]));
    assert!(table.are_released(from_ref(&old)), "a rebalance does not wait for it");
    assert_eq!(table.progress(&old, progress(3, 1)), Report::Stale);
    assert_eq!(table.begin_anew(), from_ref(&old));
    let new = table.unannounced().remove(0);
    assert!(new.epoch > old.epoch);
    assert!(table.announce(&new) && table.start(&new, 1));
    table.started(&lane(0));
    assert_eq!(table.deliver(&new, 1, 1, 1, 10), Delivery::Accepted);
    table.progress(&new, progress(2, 1));
    assert_eq!(table.moved(), [(lane(0), 2)]);
}

#[test]
fn a_partition_that_jumps_back_is_given_up() {
    let mut table = table();
    let owned = running(&mut table, 0, 50);
    table.deliver(&owned, 50, 53, 4, 40);
    table.progress(&owned, progress(54, 4));
    assert_eq!(table.deliver(&owned, 0, 0, 1, 10), Delivery::Reset);
    assert_eq!(table.deliver(&owned, 1, 1, 1, 10), Delivery::Stale);
    assert_eq!(table.begin_anew(), [owned]);
    assert_eq!(table.positions(), []);
}

#[test]
fn lanes_are_released_when_each_of_them_is() {
    let mut table = table();
    let (a, b) = (table.assign(lane(0)), table.assign(lane(1)));
    table.released(&a);
    assert!(!table.are_released(&[a.clone(), b.clone()]));
    table.released(&b);
    assert!(table.are_released(&[a, b]));
}
