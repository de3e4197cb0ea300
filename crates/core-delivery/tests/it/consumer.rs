//! The consumer over assignments, revocations, tiers and stops.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::delivery::ConsumerError;
use core_delivery::record::{OutgoingRecord, Record};
use core_delivery::testing::MemoryStore;
use tokio::sync::Notify;

use crate::support::{Act, Scripted, World, note, raw, record};

/// A copy as its tier delivers it.
fn delivered(copy: &OutgoingRecord, offset: i64) -> Record {
    Record { headers: copy.headers.clone(), payload: copy.payload.clone(), ..raw(offset, "") }
}

#[tokio::test(start_paused = true)]
async fn a_second_delivery_changes_nothing() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    let event = note(1, "a");
    world.script.deliver(&lane, vec![record(0, &event), record(1, &event)]);
    world.until_position(&lane.lane, 2).await;
    world.script.deliver(&lane, vec![record(2, &event)]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.store.lines(), ["note-1"]);
    assert_eq!(world.handler.performed(), ["note-1"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_is_tried_again_when_its_tier_is_due() {
    let handler = Scripted::default();
    let event = note(1, "a");
    handler.script(&event, &[Act::Fail, Act::Succeed]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let tier = world.script.assign("retry.10s", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until_position(&lane.lane, 1).await;
    let copy = delivered(&world.publisher.written()[0], 0);
    world.script.deliver(&tier, vec![copy]);
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    assert_eq!(world.handler.performed(), ["note-1"], "not before it is due");
    world.until_position(&tier.lane, 1).await;
    assert_eq!(world.store.lines(), ["note-1"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_ends_in_doubt() {
    let handler = Scripted::default();
    let event = note(1, "a");
    handler.script(&event, &[Act::FailUnknown, Act::Refuse]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let tier = world.script.assign("retry.10s", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until_position(&lane.lane, 1).await;
    world.script.deliver(&tier, vec![delivered(&world.publisher.written()[0], 0)]);
    world.until_position(&tier.lane, 1).await;
    let letter = world.publisher.written().pop().expect("a letter");
    let class = letter.headers.iter().find(|header| header.key == "delivery-error-class").expect("a class");
    assert_eq!(class.value.as_deref(), Some(b"in_doubt".as_slice()));
    world.stop().await.expect("it stops clean");
}

/// R2, O4: the offset waits for the acknowledgement of the copy, later events do not pass it.
#[tokio::test(start_paused = true)]
async fn the_offset_waits_for_the_copy() {
    let world = World::start();
    world.publisher.set_down(true);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a")), raw(1, "junk"), record(2, &note(2, "b"))]);
    world.until("both good events", || world.store.lines().len() == 2).await;
    world.until("many tries", || world.publisher.refused() > 5).await;
    assert_eq!(world.script.position(&lane.lane).map(|position| position.0), Some(1));
    assert!(world.health.reasons()[0].starts_with("copies to dlq of orders/0: cannot write to dlq"));
    world.publisher.set_down(false);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.publisher.written().len(), 1);
    assert_eq!(world.publisher.written()[0].payload.as_deref(), Some(b"junk".as_slice()));
    world.stop().await.expect("it stops clean");
}

/// O1: what a lane brings after it was lost changes nothing.
#[tokio::test(start_paused = true)]
async fn a_result_after_the_lane_was_lost_is_not_reported() {
    let handler = Scripted::default();
    let (event, gate) = (note(1, "a"), Arc::new(Notify::new()));
    handler.script(&event, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until("the call runs", || !world.handler.performed().is_empty()).await;
    world.script.lose(&lane);
    let again = world.script.assign("orders", 0);
    world.until("the new start", || world.script.started(&again).is_some()).await;
    gate.notify_one();
    world.until("the old unit commits", || world.store.lines() == ["note-1"]).await;
    assert_eq!(world.script.position(&lane.lane), None);
    world.script.deliver(&again, vec![record(0, &event)]);
    // The old owner's unit moved the stored position: the new one notices, and starts anew.
    world.until("the restart", || world.script.restarted(&again).is_some()).await;
    let anew = world.script.restarted(&again).expect("it was restarted");
    world.script.deliver(&anew, vec![record(1, &event)]);
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.store.lines(), ["note-1"], "the redelivery is a duplicate");
    assert_eq!(world.script.stale_reports(), 0);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_lane_finishes_its_unit_and_starts_no_other() {
    let handler = Scripted::default();
    let (first, gate) = (note(1, "a"), Arc::new(Notify::new()));
    handler.script(&first, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &first)]);
    world.until("the call runs", || !world.handler.performed().is_empty()).await;
    world.script.deliver(&lane, vec![record(1, &note(2, "b"))]);
    world.script.revoke(&lane);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!world.script.is_released(&lane), "it waits for the running unit");
    gate.notify_one();
    world.until("the release", || world.script.is_released(&lane)).await;
    assert_eq!(world.script.position(&lane.lane).map(|position| position.0), Some(1));
    assert_eq!(world.handler.performed(), ["note-1"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_runs_and_reports_it() {
    let handler = Scripted::default();
    let (event, gate) = (note(1, "a"), Arc::new(Notify::new()));
    handler.script(&event, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until("the call runs", || !world.handler.performed().is_empty()).await;
    let (script, store) = (world.script.clone(), world.store.clone());
    let stopped = tokio::spawn(world.stop());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!stopped.is_finished());
    gate.notify_one();
    stopped.await.expect("no panic").expect("it stops clean");
    assert_eq!(script.position(&lane.lane).map(|position| position.0), Some(1));
    assert_eq!(store.lines(), ["note-1"]);
}

/// D-6 within a partition: the events of a key one at a time and in order, other keys side by side.
#[tokio::test(start_paused = true)]
async fn events_of_a_key_keep_their_order_and_keys_run_side_by_side() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    let notes: Vec<_> = (0..40).map(|number| note(number, &format!("k{}", number % 20))).collect();
    let records = notes.iter().enumerate().map(|(offset, note)| record(offset as i64, note));
    world.script.deliver(&lane, records.collect());
    world.until_position(&lane.lane, 40).await;
    let performed = world.handler.performed();
    for key in 0..20 {
        let place = |number: u8| performed.iter().position(|text| *text == format!("note-{number}"));
        assert!(place(key) < place(key + 20), "key {key}");
    }
    assert_eq!(performed.len(), 40);
    assert_eq!(world.handler.most_in_flight(), 8, "bounded by calls_max, and used");
    world.stop().await.expect("it stops clean");
}

/// O10: a unit that panics ends the service loudly, and its event has no verdict.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_unit_fails_the_consumer() {
    let handler = Scripted::default();
    let event = note(1, "a");
    handler.break_record(&event);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    let (script, store) = (world.script.clone(), world.store.clone());
    let error = world.ended().await.expect_err("it fails");
    assert!(matches!(&error, ConsumerError::Panicked { .. }), "{error}");
    assert_eq!(script.position(&lane.lane), None);
    assert_eq!(store.claims(), []);
}

#[tokio::test(start_paused = true)]
async fn a_failed_stream_ends_the_consumer_with_its_reason() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    world.until_position(&lane.lane, 1).await;
    world.script.fail("group authorization failed");
    let error = world.ended().await.expect_err("it fails");
    assert!(matches!(&error, ConsumerError::Stream(_)), "{error}");
    assert!(error.to_string().contains("group authorization failed"));
}
