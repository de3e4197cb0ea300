//! A call that takes long holds neither its batch nor its lane, only its own key.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::ports::StoreError;
use core_delivery::testing::{MemoryStore, Operation};
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

/// Its unit kept what was reserved for it, because nobody knew yet what would become of it.
#[tokio::test(start_paused = true)]
async fn what_was_reserved_for_a_straggler_without_an_effect_is_taken_back() {
    let slowly = Duration::from_secs(3);
    for (act, copy) in [(Act::RefuseSlowly(slowly), "dlq"), (Act::FailSlowly(slowly), "retry.10s")] {
        let handler = Scripted::default();
        let slow = note(1, "a");
        handler.script(&slow, &[act]);
        let world = World::start_with(MemoryStore::default(), handler);
        let lane = world.script.assign("orders", 0);
        world.script.deliver(&lane, vec![record(0, &slow), record(1, &note(2, "b"))]);
        world.until_position(&lane.lane, 2).await;
        assert_eq!(world.handler.retracted(), ["note-1"]);
        assert_eq!(world.handler.performed(), ["note-1", "note-2"], "its failure was recorded");
        assert_eq!(world.store.claims().len(), 1);
        assert_eq!(world.publisher.written()[0].topic.as_str(), copy);
        world.stop().await.expect("it stops clean");
    }
}

/// What it left behind is not known, so nothing may take its place.
#[tokio::test(start_paused = true)]
async fn what_was_reserved_for_a_straggler_in_doubt_stays() {
    let handler = Scripted::default();
    let slow = note(1, "a");
    handler.script(&slow, &[Act::FailUnknownSlowly(Duration::from_secs(3))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow)]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(world.handler.retracted(), Vec::<String>::new());
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

/// A doubt of an earlier try is not lost when the next one straggles while a unit runs.
#[tokio::test(start_paused = true)]
async fn a_straggler_that_was_in_doubt_stays_in_doubt() {
    let handler = Scripted::default();
    let slow = note(1, "a");
    handler.script(&slow, &[Act::FailUnknown, Act::RefuseSlowly(Duration::from_secs(3))]);
    for number in 10..40 {
        let other = note(number, &format!("k{number}"));
        handler.script(&other, &[Act::SucceedSlowly(Duration::from_millis(900))]);
    }
    let store = MemoryStore::default();
    store.fail_next(Operation::Commit, StoreError::conflict("deadlock"));
    let world = World::start_with(store, handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow)]);
    world.until("the second try", || world.handler.performed().len() == 2).await;
    let others = (10..40).map(|number| record(i64::from(number), &note(number, &format!("k{number}"))));
    world.script.deliver(&lane, others.collect());
    world.until_position(&lane.lane, 40).await;
    let letter = world.publisher.written().pop().expect("a letter");
    let class = letter.headers.iter().find(|header| header.key == "delivery-error-class").expect("a class");
    assert_eq!(class.value.as_deref(), Some(b"in_doubt".as_slice()));
    world.stop().await.expect("it stops clean");
}

/// A receipt that meets a refusal is not thrown away: the money moved.
#[tokio::test(start_paused = true)]
async fn a_receipt_that_cannot_be_recorded_any_more_is_in_doubt() {
    let handler = Scripted::default();
    let (slow, gate) = (note(1, "a"), Arc::new(Notify::new()));
    handler.script(&slow, &[Act::Wait(Arc::clone(&gate))]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &slow), record(1, &note(2, "b"))]);
    world.until("the other key", || world.store.lines() == ["note-2"]).await;
    world.store.expire_below(note(200, "").id);
    gate.notify_one();
    world.until_position(&lane.lane, 2).await;
    let letter = world.publisher.written().pop().expect("a letter");
    let class = letter.headers.iter().find(|header| header.key == "delivery-error-class").expect("a class");
    assert_eq!(class.value.as_deref(), Some(b"in_doubt".as_slice()));
    world.stop().await.expect("it stops clean");
}
