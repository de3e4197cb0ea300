//! Positions: they move with the unit, from what the lane left, or not at all (D-11).

use core_delivery::claim::ConsumerGroup;
use core_delivery::ports::{PositionStep, StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory};
use core_delivery::record::{Committable, LaneId, LogIdentity, Topic};
use infra_postgres::{PgSettings, positions};

use crate::world::*;

fn lane(partition: i32) -> LaneId {
    LaneId { topic: Topic::new("orders"), partition }
}

fn log(topic: &str) -> LogIdentity {
    LogIdentity { cluster: "cluster".into(), topic: topic.into() }
}

fn group() -> ConsumerGroup {
    ConsumerGroup::new(GROUP)
}

fn step(from: Option<i64>, to: i64) -> PositionStep {
    PositionStep {
        group: group(),
        lane: lane(3),
        identity: log("one"),
        from: from.map(Committable),
        to: Committable(to),
    }
}

async fn advanced(world: &World, step: &PositionStep) -> Result<(), StoreError> {
    let mut unit = world.begin().await;
    unit.advance(step).await?;
    unit.commit().await
}

async fn position(world: &World) -> Option<i64> {
    let found = world.store.positions(&group(), &lane(3)).await.expect("positions");
    found.iter().find(|position| position.identity == log("one")).map(|position| position.next.0)
}

#[track_caller]
fn assert_moved<T: std::fmt::Debug>(result: Result<T, StoreError>, words: &str) {
    match result {
        Err(StoreError::Moved { context }) if context.contains(words) => {}
        other => panic!("expected moved with {words:?}, got {other:?}"),
    }
}

#[tokio::test]
async fn a_position_moves_from_what_the_lane_left() {
    let world = World::new().await;
    assert_eq!(position(&world).await, None);
    advanced(&world, &step(None, 5)).await.expect("the first");
    advanced(&world, &step(Some(5), 9)).await.expect("the next");
    // A lane that an operator sent back goes on from there.
    advanced(&world, &step(Some(9), 2)).await.expect("back");
    assert_eq!(position(&world).await, Some(2));
}

#[tokio::test]
async fn several_steps_of_one_unit_count_together() {
    let world = World::new().await;
    let mut unit = world.begin().await;
    unit.advance(&step(None, 5)).await.expect("the first");
    unit.advance(&step(Some(5), 6)).await.expect("the second");
    unit.commit().await.expect("commit");
    assert_eq!(position(&world).await, Some(6));
}

#[tokio::test]
async fn a_step_from_elsewhere_is_moved_and_says_what_was_found() {
    let world = World::new().await;
    assert_moved(advanced(&world, &step(Some(5), 9)).await, "orders/3 of group billing-order-confirmed: expected 5");
    assert_eq!(position(&world).await, None);
    advanced(&world, &step(None, 5)).await.expect("the first");
    for (from, found) in [(None, "expected no position, found 5"), (Some(4), "expected 4, found 5")] {
        assert_moved(advanced(&world, &step(from, 9)).await, found);
    }
    let elsewhere = PositionStep { identity: log("two"), ..step(Some(5), 9) };
    assert_moved(advanced(&world, &elsewhere).await, "expected 5, found no position");
    assert_eq!(position(&world).await, Some(5));
}

#[tokio::test]
async fn a_unit_that_met_moved_stores_nothing() {
    let world = World::new().await;
    let keys = keys(2);
    let mut unit = world.begin().await;
    unit.claim(&keys[..1]).await.expect("claim");
    assert_moved(unit.advance(&step(Some(5), 9)).await, "found no position");
    assert_moved(unit.claim(&keys[1..]).await, "");
    assert_moved(unit.advance(&step(None, 9)).await, "");
    // Nor does the application's own statement hide it.
    sqlx::raw_sql("select").execute(unit.connection()).await.expect("select");
    assert_moved(unit.commit().await, "");
    assert_eq!((world.stored().await, position(&world).await), (0, None));
}

#[tokio::test]
async fn a_rollback_leaves_the_position() {
    let world = World::new().await;
    advanced(&world, &step(None, 5)).await.expect("the first");
    let mut unit = world.begin().await;
    unit.advance(&step(Some(5), 9)).await.expect("advance");
    drop(unit);
    soon(advanced(&world, &step(Some(5), 6))).await.expect("nothing moved");
    assert_eq!(position(&world).await, Some(6));
}

#[tokio::test]
async fn of_two_owners_at_once_one_moves_the_position() {
    for from in [None, Some(5)] {
        let world = World::new().await;
        if from.is_some() {
            advanced(&world, &step(None, 5)).await.expect("the first");
        }
        let (mut one, mut other) = (world.begin().await, world.begin().await);
        one.advance(&step(from, 8)).await.expect("advance");
        let waits = tokio::spawn(async move { other.advance(&step(from, 9)).await });
        until("the other waits", || async { world.waiting().await == 1 }).await;
        one.commit().await.expect("commit");
        assert_moved(soon(waits).await.expect("no panic"), "found 8");
        assert_eq!(position(&world).await, Some(8));
    }
}

#[tokio::test]
async fn who_waited_for_a_unit_that_rolls_back_moves_the_position() {
    let world = World::new().await;
    let (mut one, mut other) = (world.begin().await, world.begin().await);
    one.advance(&step(None, 8)).await.expect("advance");
    let waits = tokio::spawn(async move {
        other.advance(&step(None, 9)).await?;
        other.commit().await
    });
    until("the other waits", || async { world.waiting().await == 1 }).await;
    drop(one);
    soon(waits).await.expect("no panic").expect("moved");
    assert_eq!(position(&world).await, Some(9));
}

#[tokio::test]
async fn an_owner_that_does_not_let_go_is_a_conflict() {
    let limit = std::time::Duration::from_millis(50);
    let world = World::with(|settings| PgSettings { lock_timeout: limit, ..settings }).await;
    let (mut one, mut other) = (world.begin().await, world.begin().await);
    one.advance(&step(None, 8)).await.expect("advance");
    assert_conflict(other.advance(&step(None, 9)).await);
    assert_conflict(other.commit().await);
}

#[tokio::test]
async fn groups_lanes_and_logs_have_positions_of_their_own() {
    let world = World::new().await;
    let first = step(None, 5);
    for other in [
        first.clone(),
        PositionStep { group: ConsumerGroup::new("analytics"), ..first.clone() },
        PositionStep { lane: lane(4), ..first.clone() },
        PositionStep { lane: LaneId { topic: Topic::new("payments"), partition: 3 }, ..first.clone() },
        PositionStep { identity: log("two"), ..first.clone() },
        PositionStep { identity: LogIdentity { cluster: "other".into(), topic: "one".into() }, ..first },
    ] {
        advanced(&world, &other).await.expect("the first of its own");
    }
    let mut found = world.store.positions(&group(), &lane(3)).await.expect("positions");
    found.sort_by_key(|position| (position.identity.cluster.to_string(), position.identity.topic.to_string()));
    let expected = [log("one"), log("two"), LogIdentity { cluster: "other".into(), topic: "one".into() }];
    assert_eq!(found, expected.map(|identity| StoredPosition { identity, next: Committable(5) }));
}

#[tokio::test]
async fn an_operator_sees_all_positions_and_sets_one() {
    let world = World::new().await;
    assert_eq!(positions::all(&world.maintenance, &group()).await.expect("all"), []);
    let set = |next| {
        let (pool, lane) = (world.maintenance.clone(), lane(3));
        async move { positions::set(&pool, &group(), &lane, &log("one"), Committable(next)).await.expect("set") }
    };
    assert_eq!(set(40).await, None);
    assert_eq!(set(7).await, Some(Committable(40)));
    advanced(&world, &PositionStep { lane: lane(1), ..step(None, 3) }).await.expect("another lane");
    let all = positions::all(&world.maintenance, &group()).await.expect("all");
    let rows: Vec<_> = all.iter().map(|row| (row.lane.to_string(), row.position.next.0)).collect();
    assert_eq!(rows, [("orders/1".to_owned(), 3), ("orders/3".to_owned(), 7)]);
    assert!(all.iter().all(|row| now().since(row.moved_at).as_secs() < 60), "{all:?}");
    // The owner of the lane finds out.
    assert_moved(advanced(&world, &step(Some(40), 41)).await, "expected 40, found 7");
}
