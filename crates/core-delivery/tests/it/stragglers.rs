//! A call that takes long holds neither its batch nor its lane, only its own key.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::testing::MemoryStore;
use tokio::sync::Notify;

use crate::support::{Act, Scripted, World, note, record};

#[tokio::test(start_paused = true)]
async fn a_straggler_holds_only_its_own_key_and_is_recorded_by_a_later_unit() {
    let handler = Scripted::default();
    let gate = Arc::new(Notify::new());
    let (slow, other, same_key) = (note(1, "a"), note(2, "b"), note(3, "a"));
    handler.script(&slow, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow), record(1, &other), record(2, &same_key)]);
    world.until("the other key", || world.store.lines() == ["note-2"]).await;
    world.script.deliver(&lane, vec![record(3, &note(4, "c")), record(4, &slow)]);
    world.until("a later batch", || world.store.lines() == ["note-2", "note-4"]).await;
    assert_eq!(
        world.handler.performed(),
        ["note-1", "note-2", "note-4"],
        "one call for the slow event, none of its key"
    );
    assert_eq!(world.script.position(&lane.lane), None, "the straggler holds the position");
    assert_eq!(world.store.claims().len(), 2, "the straggler's claim was released");

    gate.notify_one();
    world.until_position(&lane.lane, 5).await;
    assert_eq!(world.store.lines(), ["note-2", "note-4", "note-1", "note-3"]);
    assert_eq!(world.handler.performed(), ["note-1", "note-2", "note-4", "note-3"], "its receipt was recorded");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_straggler_that_fails_goes_to_its_tier() {
    let handler = Scripted::default();
    let slow = note(1, "a");
    handler.script(&slow, &[Act::FailSlowly(Duration::from_secs(3))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow), record(1, &note(2, "b"))]);
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.store.lines(), ["note-2"]);
    assert_eq!(world.publisher.written()[0].topic.as_str(), "retry.10s");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_a_straggler_and_records_it() {
    let handler = Scripted::default();
    let (slow, gate) = (note(1, "a"), Arc::new(Notify::new()));
    handler.script(&slow, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow), record(1, &note(2, "b"))]);
    world.until("the other key", || world.store.lines() == ["note-2"]).await;
    let (script, store) = (world.script.clone(), world.store.clone());
    let stopped = tokio::spawn(world.stop());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!stopped.is_finished(), "the call still runs");
    gate.notify_one();
    stopped.await.expect("no panic").expect("it stops clean");
    assert_eq!(store.lines(), ["note-2", "note-1"]);
    assert_eq!(script.position(&lane.lane).map(|position| position.0), Some(2));
}

/// With more slow events than calls in flight, what was not started is not lost, and nothing is called twice.
#[tokio::test(start_paused = true)]
async fn more_stragglers_than_calls_are_worked_off() {
    let handler = Scripted::default();
    let notes: Vec<_> = (0..40).map(|number| note(number, &format!("k{}", number % 20))).collect();
    notes.iter().for_each(|note| handler.script(note, &[Act::SucceedSlowly(Duration::from_secs(3))]));
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let records = notes.iter().enumerate().map(|(offset, note)| record(offset as i64, note));
    world.script.deliver(&lane, records.collect());
    world.until_position(&lane.lane, 40).await;
    assert_eq!(world.store.lines().len(), 40);
    assert_eq!(world.handler.performed().len(), 40);
    assert!(world.handler.most_in_flight() <= 8);
    world.stop().await.expect("it stops clean");
}
