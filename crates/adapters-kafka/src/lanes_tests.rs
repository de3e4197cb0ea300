//! The rules of the lane table; no broker is needed for them.

use core_delivery::record::{Committable, Topic};

use super::*;

fn table() -> LaneTable {
    LaneTable::new(LaneLimits { records: 4, bytes: 1_000 })
}

fn lane(partition: i32) -> LaneId {
    LaneId { topic: Topic::new("orders"), partition }
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
    let owned = table.assign(lane(0));
    assert_eq!(table.deliver(&owned, 0, 9, 10, 100), Delivery::Accepted);
    assert_eq!(table.progress(&owned, progress(7, 7)), Report::Counted);
    assert_eq!(table.progress(&owned, progress(3, 0)), Report::Counted);
    assert_eq!(table.position(&owned), Some(7));
}

#[test]
fn a_position_beyond_what_was_delivered_changes_nothing() {
    let mut table = table();
    let owned = table.assign(lane(0));
    assert_eq!(table.progress(&owned, progress(1, 1)), Report::Impossible);
    table.deliver(&owned, 5, 9, 5, 50);
    assert_eq!(table.progress(&owned, progress(11, 5)), Report::Impossible);
    assert_eq!(table.positions(), []);
}

#[test]
fn a_report_of_an_older_epoch_changes_nothing() {
    let mut table = table();
    let old = table.assign(lane(0));
    table.deliver(&old, 0, 3, 4, 40);
    let new = table.assign(lane(0));
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
    let owned = table.assign(lane(0));
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
    let owned = table.assign(lane(0));
    table.assign(lane(1));
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
    let owned = table.assign(lane(0));
    table.reached(&lane(0), 100);
    assert_eq!(table.position(&owned), None, "nothing was delivered yet");
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
fn a_partition_that_jumps_back_begins_a_new_epoch() {
    let mut table = table();
    let owned = table.assign(lane(0));
    table.deliver(&owned, 50, 53, 4, 40);
    table.progress(&owned, progress(54, 4));
    let Delivery::Restarted(new) = table.deliver(&owned, 0, 0, 1, 10) else { panic!("not restarted") };
    assert!(new.epoch > owned.epoch);
    assert_eq!(table.position(&new), None);
    assert_eq!(table.progress(&new, progress(1, 1)), Report::Counted);
    assert_eq!(table.moved(), [(lane(0), 1)]);
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
