//! The part of the contract that is about positions: they move with their unit, from what was stored last, or not at
//! all (D-11).

use futures::join;

use super::{claim, commit, keys, new_group, open};
use crate::claim::Claim::Fresh;
use crate::claim::ConsumerGroup;
use crate::ports::{PositionStep, StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory};
use crate::record::{Committable, LaneId, LogIdentity, Topic};

pub(super) async fn keep_the_contract<F: UnitOfWorkFactory>(store: &F) {
    a_position_is_stored_with_its_unit(store).await;
    a_step_from_another_position_stores_nothing(store).await;
    lanes_and_groups_have_positions_of_their_own(store).await;
    of_two_units_that_move_a_lane_the_second_is_told(store).await;
    a_unit_that_waited_for_one_that_is_dropped_moves_the_lane(store).await;
}

fn step(group: &ConsumerGroup, partition: i32, from: Option<i64>, to: i64) -> PositionStep {
    PositionStep {
        group: group.clone(),
        lane: LaneId { topic: Topic::new("contract"), partition },
        identity: LogIdentity { cluster: "cluster".into(), topic: "topic".into() },
        from: from.map(Committable),
        to: Committable(to),
    }
}

async fn advance<U: UnitOfWork>(unit: &mut U, step: &PositionStep) {
    unit.advance(step).await.expect("the position moves");
}

async fn advanced<U: UnitOfWork>(mut unit: U, step: &PositionStep) -> Result<(), StoreError> {
    unit.advance(step).await?;
    unit.commit().await
}

async fn positions<F: UnitOfWorkFactory>(store: &F, of: &PositionStep) -> Vec<StoredPosition> {
    store.positions(&of.group, &of.lane).await.expect("the positions")
}

fn at(step: &PositionStep) -> Vec<StoredPosition> {
    vec![StoredPosition { identity: step.identity.clone(), next: step.to }]
}

#[track_caller]
fn assert_moved(result: Result<(), StoreError>) {
    assert!(matches!(result, Err(StoreError::Moved { .. })), "{result:?}");
}

async fn a_position_is_stored_with_its_unit<F: UnitOfWorkFactory>(store: &F) {
    let group = new_group();
    let (first, second) = (step(&group, 0, None, 5), step(&group, 0, Some(5), 9));
    let mut unit = open(store).await;
    advance(&mut unit, &first).await;
    assert_eq!(positions(store, &first).await, []);
    commit(unit).await;
    assert_eq!(positions(store, &first).await, at(&first));
    let mut unit = open(store).await;
    advance(&mut unit, &second).await;
    drop(unit);
    advanced(open(store).await, &second).await.expect("what was dropped has moved nothing");
    assert_eq!(positions(store, &first).await, at(&second));
}

async fn a_step_from_another_position_stores_nothing<F: UnitOfWorkFactory>(store: &F) {
    let group = new_group();
    assert_moved(advanced(open(store).await, &step(&group, 0, Some(5), 9)).await);
    let first = step(&group, 0, None, 5);
    advanced(open(store).await, &first).await.expect("the first");
    for from in [None, Some(4), Some(6)] {
        let keys = keys(1);
        let mut unit = open(store).await;
        assert_eq!(claim(&mut unit, &keys).await, [Fresh]);
        assert_moved(unit.advance(&step(&group, 0, from, 9)).await);
        assert!(unit.commit().await.is_err(), "the caller may not commit what a former owner did");
        assert_eq!(claim(&mut open(store).await, &keys).await, [Fresh]);
    }
    assert_eq!(positions(store, &first).await, at(&first));
}

async fn lanes_and_groups_have_positions_of_their_own<F: UnitOfWorkFactory>(store: &F) {
    let (group, other) = (new_group(), new_group());
    let steps = [step(&group, 0, None, 5), step(&group, 1, None, 6), step(&other, 0, None, 7)];
    let mut unit = open(store).await;
    for step in &steps {
        advance(&mut unit, step).await;
    }
    commit(unit).await;
    for step in &steps {
        assert_eq!(positions(store, step).await, at(step));
    }
}

async fn of_two_units_that_move_a_lane_the_second_is_told<F: UnitOfWorkFactory>(store: &F) {
    let group = new_group();
    let (first, second) = (step(&group, 0, None, 5), step(&group, 0, None, 6));
    let (mut unit, other) = (open(store).await, open(store).await);
    advance(&mut unit, &first).await;
    let (told, ()) = join!(advanced(other, &second), commit(unit));
    assert_moved(told);
    assert_eq!(positions(store, &first).await, at(&first));
}

async fn a_unit_that_waited_for_one_that_is_dropped_moves_the_lane<F: UnitOfWorkFactory>(store: &F) {
    let group = new_group();
    let (first, second) = (step(&group, 0, None, 5), step(&group, 0, None, 6));
    let (mut unit, other) = (open(store).await, open(store).await);
    advance(&mut unit, &first).await;
    let (told, ()) = join!(advanced(other, &second), async { drop(unit) });
    told.expect("nothing was moved before");
    assert_eq!(positions(store, &first).await, at(&second));
}
