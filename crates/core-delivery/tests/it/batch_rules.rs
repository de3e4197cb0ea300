//! What a unit does when the store or the handler misbehaves.

use std::time::Duration;

use core_delivery::event::EventId;
use core_delivery::ports::{ErrorClass, StoreError};
use core_delivery::record::Committable;
use core_delivery::testing::{MemoryStore, Operation};

use crate::support::{Act, Note, START, Scripted, World, note, record};

fn header(record: &core_delivery::record::OutgoingRecord, key: &str) -> String {
    let header = record.headers.iter().find(|header| header.key == key).expect("the header is there");
    String::from_utf8_lossy(header.value.as_ref().expect("it has a value")).into_owned()
}

/// D3: what became of the commit is unknown, so the lane starts anew and the claim decides.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_commit_neither_loses_nor_repeats_the_event() {
    let store = MemoryStore::default();
    store.fail_next(Operation::Committed, StoreError::commit_unknown("the answer was lost"));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    world.until("the restart", || world.script.restarted(&lane).is_some()).await;
    let again = world.script.restarted(&lane).expect("it was restarted");
    world.until("the start", || world.script.started(&again).is_some()).await;
    assert_eq!(world.script.started(&again), Some(Committable(1)), "the position came with the commit");
    world.script.deliver(&again, vec![record(1, &note(1, "a")), record(2, &note(2, "a"))]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.store.lines(), ["note-1", "note-2"]);
    assert_eq!(world.handler.performed(), ["note-1", "note-2"], "the claim answers, nothing is performed again");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_failed_commit_keeps_the_receipt_for_the_next_unit() {
    let store = MemoryStore::default();
    store.fail_next(Operation::Commit, StoreError::unavailable("terminated"));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(world.store.lines(), ["note-1"]);
    assert_eq!(world.handler.performed(), ["note-1"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn an_outage_moves_no_event_and_uses_no_attempt() {
    let store = MemoryStore::default();
    for _ in 0..20 {
        store.fail_next(Operation::Begin, StoreError::unavailable("connection refused"));
    }
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a")), record(1, &note(2, "b"))]);
    world
        .until("the outage is told", || {
            world.health.reasons() == ["orders/0: the store is unavailable: connection refused"]
        })
        .await;
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.publisher.written(), []);
    assert_eq!(world.health.reasons(), Vec::<String>::new());
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn colliding_units_are_run_again() {
    let store = MemoryStore::default();
    for _ in 0..4 {
        store.fail_next(Operation::Claim, StoreError::conflict("deadlock"));
    }
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(world.store.lines(), ["note-1"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_refused_line_harms_only_its_own_event() {
    let handler = Scripted::default();
    let notes: Vec<_> = (0..5).map(|number| note(number, &format!("k{number}"))).collect();
    handler.refuse_line(&notes[2]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let records = notes.iter().enumerate().map(|(offset, note)| record(offset as i64, note));
    world.script.deliver(&lane, records.collect());
    world.until_position(&lane.lane, 5).await;
    let mut lines = world.store.lines();
    lines.sort();
    assert_eq!(lines, ["note-0", "note-1", "note-3", "note-4"]);
    let letters = world.publisher.written();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].topic.as_str(), "dlq");
    assert_eq!(header(&letters[0], "delivery-error-class"), ErrorClass::IN_DOUBT.as_str());
    assert_eq!(header(&letters[0], "delivery-origin-offset"), "2");
    assert_eq!(world.handler.performed().len(), 5, "receipts are kept, nothing is performed twice");
    assert_eq!(world.store.claims().len(), 4, "the refused event can be replayed");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_stop_the_lane_and_move_nothing() {
    let handler = Scripted::default();
    let (first, second) = (note(1, "a"), note(2, "a"));
    handler.script(&first, &[Act::Halt, Act::Halt, Act::Succeed]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &first), record(1, &second)]);
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.handler.performed(), ["note-1", "note-1", "note-1", "note-2"], "D-6: the second waits");
    assert_eq!(world.store.lines(), ["note-1", "note-2"]);
    assert_eq!(world.publisher.written(), []);
    world.stop().await.expect("it stops clean");
}

/// A try with an unknown outcome is remembered, though its unit came to nothing and no header tells of it.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_remembered_when_its_unit_is_run_again() {
    let handler = Scripted::default();
    let event = note(1, "a");
    handler.script(&event, &[Act::FailUnknown, Act::Refuse]);
    let store = MemoryStore::default();
    store.fail_next(Operation::Commit, StoreError::conflict("deadlock"));
    let world = World::start_with(store, handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until_position(&lane.lane, 1).await;
    let letter = world.publisher.written().pop().expect("a letter");
    assert_eq!(header(&letter, "delivery-error-class"), "in_doubt");
    world.stop().await.expect("it stops clean");
}

/// A try of another delivery may have had an effect: one that fails cleanly takes nothing back, and its copy says so.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_try_left_reserved_is_in_doubt_for_every_delivery() {
    let handler = Scripted::default();
    let event = note(1, "a");
    handler.script(&event, &[Act::Fail]);
    handler.leave_reserved(&event);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &event)]);
    world.until_position(&lane.lane, 1).await;
    let copy = world.publisher.written().pop().expect("a copy");
    assert_eq!(copy.topic.as_str(), "retry.10s");
    assert_eq!(header(&copy, "delivery-in-doubt"), "true");
    assert!(world.handler.retracted().is_empty(), "the order may be charged");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_harms_only_its_own_event() {
    let handler = Scripted::default();
    let (bad, good) = (note(1, "a"), note(2, "b"));
    handler.script(&bad, &[Act::Panic]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &bad), record(1, &good)]);
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.store.lines(), ["note-2"]);
    let copies = world.publisher.written();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].topic.as_str(), "retry.10s");
    assert_eq!(header(&copies[0], "delivery-error-text"), "the handler panicked: scripted panic");
    assert_eq!(header(&copies[0], "delivery-in-doubt"), "true");
    world.stop().await.expect("it stops clean");
}

/// Trap 2: a provider whose every answer is a refusal must not drain the topic into the dead letters. The first events
/// are bad themselves: they do not hide the others from the probes.
#[tokio::test(start_paused = true)]
async fn in_a_storm_of_failures_no_event_moves() {
    let handler = Scripted::default();
    let notes: Vec<_> = (0..60).map(|number| note(number, &format!("k{number}"))).collect();
    notes[..15].iter().for_each(|note| handler.script(note, &[Act::Refuse]));
    notes[15..].iter().for_each(|note| handler.script(note, &[Act::Refuse, Act::Refuse, Act::Succeed]));
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    let records = notes.iter().enumerate().map(|(offset, note)| record(offset as i64, note));
    world.script.deliver(&lane, records.collect());
    world
        .until("the storm is told", || {
            world.health.reasons().first().is_some_and(|reason| reason.contains("too many calls fail"))
        })
        .await;
    assert_eq!(world.publisher.written(), []);
    world.until("the end of the storm", || world.health.reasons().is_empty()).await;
    world.until_position(&lane.lane, 60).await;
    let (applied, letters) = (world.store.lines().len(), world.publisher.written().len());
    assert_eq!(applied + letters, 60);
    assert!(applied >= 15, "{applied}");
    world.stop().await.expect("it stops clean");
}

/// What is refused without a call says nothing about the world: it moves on, however often it comes.
#[tokio::test(start_paused = true)]
async fn a_row_of_expired_events_is_no_storm() {
    let store = MemoryStore::default();
    store.expire_below(EventId::first_at(START.plus(Duration::from_millis(1))));
    let world = World::start_with(store, Scripted::default());
    let lane = world.script.assign("orders", 0);
    let expired = (0..60).map(|number| record(i64::from(number), &note(number, &format!("k{number}"))));
    world.script.deliver(&lane, expired.collect());
    world.until_position(&lane.lane, 60).await;
    assert_eq!(world.publisher.written().len(), 60);
    world.stop().await.expect("it stops clean");
}

/// An id from the future is a dead letter only if the store's clock agrees with ours; else it is ours that is wrong, as
/// likely as not: nothing moves, and the record is judged anew by the right clock.
#[tokio::test(start_paused = true)]
async fn an_id_from_the_future_is_no_dead_letter_while_the_clocks_disagree() {
    let world = World::start();
    world.store.set_clock(START.plus(Duration::from_secs(600)));
    let early = Note { id: EventId::at(START.plus(Duration::from_secs(590)), [9; 10]), ..note(9, "a") };
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &early), record(1, &note(1, "b"))]);
    world.until("the halt", || world.health.is_halted()).await;
    assert!(world.health.reasons()[0].contains("clock"), "{:?}", world.health.reasons());
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(world.publisher.written(), []);

    // Ours was right after all, and by now the event lies in the past far enough.
    world.store.set_clock(START.plus(Duration::from_secs(404)));
    world.until_position(&lane.lane, 2).await;
    assert_eq!(world.publisher.written(), []);
    assert!(world.store.lines().contains(&"note-9".to_owned()));
    assert_eq!(world.script.restarted(&lane), None);
    world.stop().await.expect("it stops clean");
}

/// Between the judgement and the look at the store's clock ours may have gone on, or been set right.
#[tokio::test(start_paused = true)]
async fn an_id_that_is_not_from_the_future_any_more_when_the_clocks_are_looked_at_is_no_dead_letter() {
    let store = MemoryStore::default();
    for _ in 0..6 {
        store.fail_next(Operation::Clock, StoreError::unavailable("away"));
    }
    let world = World::start_with(store, Scripted::default());
    let early = Note { id: EventId::at(START.plus(Duration::from_secs(301)), [9; 10]), ..note(9, "a") };
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &early)]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(world.publisher.written(), []);
    assert_eq!(world.store.lines(), ["note-9"]);
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn an_id_from_the_future_is_a_dead_letter_when_the_clocks_agree() {
    let world = World::start();
    let early = Note { id: EventId::at(START.plus(Duration::from_secs(590)), [9; 10]), ..note(9, "a") };
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &early)]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(header(&world.publisher.written()[0], "delivery-error-class"), "from_the_future");
    world.stop().await.expect("it stops clean");
}

/// Only the lane that looks at the clocks can say that they agree again. If it is lost meanwhile, the others go on.
#[tokio::test(start_paused = true)]
async fn a_lost_lane_takes_its_doubt_about_the_clocks_with_it() {
    let world = World::start();
    world.store.set_clock(START.plus(Duration::from_secs(600)));
    let early = Note { id: EventId::at(START.plus(Duration::from_secs(590)), [9; 10]), ..note(9, "a") };
    let (lost, kept) = (world.script.assign("orders", 0), world.script.assign("orders", 1));
    world.script.deliver(&lost, vec![record(0, &early)]);
    world.until("the halt", || world.health.is_halted()).await;
    world.script.lose(&lost);
    world.script.deliver(&kept, vec![record(0, &note(1, "b"))]);
    world.until_position(&kept.lane, 1).await;
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_halt_starts_no_unit_until_it_is_cleared() {
    let world = World::start();
    world.health.halt("clock", "the clocks disagree");
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &note(1, "a"))]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.handler.performed(), Vec::<String>::new());
    world.health.clear("clock");
    world.until_position(&lane.lane, 1).await;
    world.stop().await.expect("it stops clean");
}

/// D-9: an event below the floor is never guessed at.
#[tokio::test(start_paused = true)]
async fn an_expired_event_is_a_duplicate_if_it_is_known_and_else_a_dead_letter() {
    let (known, unknown, young) = (note(1, "a"), note(2, "b"), note(3, "c"));
    let handler = Scripted::default();
    handler.know(&known);
    let store = MemoryStore::default();
    store.expire_below(young.id);
    let world = World::start_with(store, handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &known), record(1, &unknown), record(2, &young)]);
    world.until_position(&lane.lane, 3).await;
    assert_eq!(world.handler.performed(), ["note-3"]);
    let letters = world.publisher.written();
    assert_eq!(letters.len(), 1);
    assert_eq!(header(&letters[0], "delivery-error-class"), "expired");
    assert_eq!(header(&letters[0], "delivery-origin-offset"), "1");
    world.stop().await.expect("it stops clean");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_back_when_the_handler_fails() {
    let handler = Scripted::default();
    let failing = note(1, "a");
    handler.script(&failing, &[Act::Refuse]);
    let world = World::start_with(MemoryStore::default(), handler);
    let lane = world.script.assign("orders", 0);
    world.script.deliver(&lane, vec![record(0, &failing)]);
    world.until_position(&lane.lane, 1).await;
    assert_eq!(world.store.claims(), []);
    assert_eq!(world.publisher.written()[0].topic.as_str(), "dlq");
    world.stop().await.expect("it stops clean");
}
