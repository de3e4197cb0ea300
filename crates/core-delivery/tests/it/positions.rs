//! Positions in the store: kept with the outcomes, ahead of Kafka's offsets, and believed when the two differ (D-11).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use core_delivery::claim::{ConsumerGroup, DedupKey};
use core_delivery::ports::{StoreError, StoredPosition};
use core_delivery::record::{Assignment, Committable, LaneId};
use core_delivery::testing::{MemoryStore, Operation, Script};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::{Act, Scripted, World, note, raw, record};

fn group() -> ConsumerGroup {
    ConsumerGroup::new("g")
}

fn stored(next: i64) -> Option<StoredPosition> {
    Some(StoredPosition { identity: Script::arrival(None).identity, next: Committable(next) })
}

async fn started(world: &World, lane: &Assignment) -> i64 {
    world.until("the start", || world.script.started(lane).is_some()).await;
    world.script.started(lane).expect("it started").0
}

fn position(world: &World, lane: &LaneId) -> Option<i64> {
    world.store.position(&group(), lane).map(|position| position.0)
}

#[tokio::test(start_paused = true)]
async fn the_position_is_stored_with_the_outcomes() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    assert_eq!(started(&world, &lane).await, 0);
    world.script.deliver(&lane, vec![record(4, &note(1, "a")), record(7, &note(2, "b"))]);
    world.until("the lines", || world.store.lines().len() == 2).await;
    assert_eq!(position(&world, &lane.lane), Some(8), "in the same unit");
    world.until_position(&lane.lane, 8).await;
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn verdicts_outside_of_units_are_stored_before_they_are_reported() {
    let store = MemoryStore::default();
    for _ in 0..10 {
        store.fail_next(Operation::Advance, StoreError::unavailable("away"));
    }
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![raw(0, "junk"), raw(1, "junk")]);
    world.until("the letters", || world.publisher.written().len() == 2).await;
    world.until("the outage is told", || !world.health.reasons().is_empty()).await;
    assert_eq!(world.script.position(&lane.lane), None);
    world.until_position(&lane.lane, 2).await;
    assert_eq!(position(&world, &lane.lane), Some(2));
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_not_written_holds_the_stored_position() {
    let world = World::start();
    world.publisher.set_down(true);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a")), raw(1, "junk"), record(2, &note(2, "b"))]);
    world.until("the lines", || world.store.lines().len() == 2).await;
    world.until("many tries", || world.publisher.refused() > 5).await;
    assert_eq!(position(&world, &lane.lane), Some(1));
    world.publisher.set_down(false);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(position(&world, &lane.lane), Some(3));
    world.stop().await.expect("it stops clean");
}

/// The database lost its last commits while the consumer ran: it goes back and applies them again.
#[tokio::test(start_paused = true)]
async fn a_database_that_went_back_is_caught_up() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    let notes = [note(1, "a"), note(2, "b"), note(3, "c")];
    world.script.deliver(&lane, vec![record(0, &notes[0])]);
    world.until_position(&lane.lane, 1).await;
    world.script.deliver(&lane, vec![record(1, &notes[1])]);
    world.until_position(&lane.lane, 2).await;

    world.store.set_position(&group(), &lane.lane, stored(1));
    world.store.forget(&DedupKey::new(notes[1].id, group()), "note-2");
    world.script.deliver(&lane, vec![record(2, &notes[2])]);
    world.until("the restart", || world.script.restarted(&lane).is_some()).await;
    let again = world.script.restarted(&lane).expect("it was restarted");
    assert_eq!(started(&world, &again).await, 1, "the lower of Kafka's 2 and the store's 1");
    assert_eq!(world.store.lines(), ["note-1"], "the unit that met the difference left nothing");
    world.script.deliver(&again, vec![record(1, &notes[1]), record(2, &notes[2])]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.store.lines(), ["note-1", "note-2", "note-3"]);
    world.stop().await.expect("it stops clean");
}

/// The same while a unit of the lane is open, so that no look of an idle lane can notice: the compare-and-set of that
/// very unit does, long before the lane would look.
#[tokio::test(start_paused = true)]
async fn a_database_that_went_back_under_a_busy_lane_is_noticed_by_its_unit() {
    let (handler, go_on) = (Scripted::default(), Arc::new(Notify::new()));
    let notes = [note(1, "a"), note(2, "b"), note(3, "c")];
    handler.script(&notes[2], &[Act::Wait(Arc::clone(&go_on)), Act::Succeed]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    for (offset, note) in notes[..2].iter().enumerate() {
        world.script.deliver(&lane, vec![record(offset as i64, note)]);
        world.until_position(&lane.lane, offset as i64 + 1).await;
    }
    let busy_since = Instant::now();
    world.script.deliver(&lane, vec![record(2, &notes[2])]);
    world.until("the call", || world.handler.performed().len() == 3).await;
    world.store.set_position(&group(), &lane.lane, stored(1));
    world.store.forget(&DedupKey::new(notes[1].id, group()), "note-2");
    go_on.notify_one();

    world.until("the restart", || world.script.restarted(&lane).is_some()).await;
    assert!(busy_since.elapsed() < Duration::from_secs(5), "noticed after {:?}", busy_since.elapsed());
    assert_eq!(world.store.lines(), ["note-1"], "the unit that met the difference left nothing");
    let again = world.script.restarted(&lane).expect("it was restarted");
    assert_eq!(started(&world, &again).await, 1);
    world.script.deliver(&again, vec![record(1, &notes[1]), record(2, &notes[2])]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.store.lines(), ["note-1", "note-2", "note-3"]);
    world.stop().await.expect("it stops clean");
}

/// The same, and nothing more is delivered that would run into the difference.
#[tokio::test(start_paused = true)]
async fn a_database_that_went_back_under_an_idle_lane_is_noticed() {
    let world = World::start();
    let lane = world.script.assign("orders", 0);
    let event = note(1, "a");
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until_position(&lane.lane, 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.script.restarted(&lane), None);

    world.store.set_position(&group(), &lane.lane, None);
    world.store.forget(&DedupKey::new(event.id, group()), "note-1");
    world.until("the restart", || world.script.restarted(&lane).is_some()).await;
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_database_restored_while_the_consumer_was_away_is_caught_up() {
    let store = MemoryStore::default();
    let lane = LaneId { topic: core_delivery::record::Topic::new("orders"), partition: 0 };
    store.set_position(&group(), &lane, stored(5));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign_with("orders", 0, Script::arrival(Some(9)));
    assert_eq!(started(&world, &lane).await, 5);
    world.until_position(&lane.lane, 5).await;
    world.stop().await.expect("it stops clean");
}

/// Kafka's offset stands behind the ends of transactions where nothing is unsettled, and the store's behind the last
/// record: that is no difference. Whether there is a record in between is seen when it is read.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_behind_by_no_record_raises_no_alarm() {
    for (first, alarms) in [(9, 0), (8, 1)] {
        let recorder = Alarms::default();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let store = MemoryStore::default();
        let lane = LaneId { topic: core_delivery::record::Topic::new("orders"), partition: 0 };
        store.set_position(&group(), &lane, stored(5));
        let world = World::start_with(store, Scripted::default());
        let lane = world.script.assign_with("orders", 0, Script::arrival(Some(9)));
        assert_eq!(started(&world, &lane).await, 5);
        world.script.deliver(&lane, vec![record(first, &note(1, "a")), record(10, &note(2, "a"))]);
        world.until_position(&lane.lane, 11).await;
        assert_eq!(recorder.0.load(Ordering::Relaxed), alarms, "first record at {first}");
        world.stop().await.expect("it stops clean");
    }
}

/// Counts the alarms about stores that are behind, of all metrics.
#[derive(Default)]
struct Alarms(Arc<AtomicU64>);

impl Recorder for Alarms {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let behind = key.labels().any(|label| label.key() == "kind" && label.value() == "store_is_behind");
        match behind {
            true => Counter::from_arc(Arc::clone(&self.0)),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// An operator's reset backwards: what is applied again is a duplicate, and the stored position does not go back.
#[tokio::test(start_paused = true)]
async fn a_reset_backwards_is_honoured() {
    let store = MemoryStore::default();
    let lane = LaneId { topic: core_delivery::record::Topic::new("orders"), partition: 0 };
    store.set_position(&group(), &lane, stored(5));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign_with("orders", 0, Script::arrival(Some(2)));
    assert_eq!(started(&world, &lane).await, 2);
    world.script.deliver(&lane, vec![record(2, &note(1, "a"))]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(position(&world, &lane.lane), Some(5));
    let later = (3..6).map(|offset| record(offset, &note(offset as u8, "a"))).collect();
    world.script.deliver(&lane, later);
    world.until_position(&lane.lane, 6).await;
    assert_eq!(position(&world, &lane.lane), Some(6));
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn kafkas_position_alone_is_refused_until_an_operator_says() {
    let world = World::start();
    let lane = world.script.assign_with("orders", 0, Script::arrival(Some(4)));
    world
        .until("the refusal is told", || {
            world.health.reasons().first().is_some_and(|reason| reason.contains("positions import"))
        })
        .await;
    assert_eq!(world.script.started(&lane), None);
    world.store.set_position(&group(), &lane.lane, stored(4));
    assert_eq!(started(&world, &lane).await, 4);
    assert_eq!(world.health.reasons(), Vec::<String>::new());
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_is_waited_for_and_not_taken_for_an_empty_one() {
    let store = MemoryStore::default();
    let lane = LaneId { topic: core_delivery::record::Topic::new("orders"), partition: 0 };
    store.set_position(&group(), &lane, stored(5));
    for _ in 0..5 {
        store.fail_next(Operation::Positions, StoreError::unavailable("connection refused"));
    }
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign_with("orders", 0, Script::arrival(None));
    world.until("the outage is told", || !world.health.reasons().is_empty()).await;
    assert_eq!(started(&world, &lane).await, 5);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_for_its_start_can_be_revoked() {
    let world = World::start();
    let lane = world.script.assign_with("orders", 0, Script::arrival(Some(4)));
    world.until("the refusal is told", || !world.health.reasons().is_empty()).await;
    world.script.revoke(&lane);
    world.until("the release", || world.script.is_released(&lane)).await;
    world.stop().await.expect("it stops clean");
}

/// A position behind the end of the log describes another log: it is replaced, so that the next start believes it.
#[tokio::test(start_paused = true)]
async fn a_position_past_the_end_is_replaced() {
    let store = MemoryStore::default();
    let lane = LaneId { topic: core_delivery::record::Topic::new("orders"), partition: 0 };
    store.set_position(&group(), &lane, stored(2_000_000));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    assert_eq!(started(&world, &lane).await, 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    world.until("the position is replaced", || position(&world, &lane.lane) == Some(1)).await;
    world.stop().await.expect("it stops clean");
}

/// A unit behind a held position moves no position. A database that lost it and nothing else holds the same position as
/// before, so no compare-and-set fails.
#[tokio::test(start_paused = true)]
async fn a_lost_unit_that_moved_no_position_is_noticed_before_the_position_passes_it() {
    let handler = Scripted::default();
    let (slow, other, gate) = (note(1, "a"), note(2, "b"), Arc::new(Notify::new()));
    handler.script(&slow, &[Act::Wait(Arc::clone(&gate)), Act::Succeed]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let records = vec![record(0, &slow), record(1, &other)];
    world.script.deliver(&lane, records.clone());
    world.until("the other event", || world.store.lines() == ["note-2"]).await;
    world.store.forget(&DedupKey::new(other.id, group()), "note-2");
    gate.notify_one();
    world.until("the lane starts anew", || world.script.restarted(&lane).is_some()).await;
    assert_eq!(position(&world, &lane.lane), None, "nothing was stored that passes the lost event");

    let again = world.script.restarted(&lane).expect("it was seen");
    world.script.deliver(&again, records);
    world.until_position(&lane.lane, 2).await;
    let mut lines = world.store.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["note-1", "note-2"]);
    world.stop().await.expect("it stops clean");
}
