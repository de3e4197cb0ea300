//! The contract of a store: every implementation of the unit of work runs it, on its real component.

mod expiry;
mod marks;
mod positions;

use futures::join;

use crate::claim::{Claim, ConsumerGroup, DedupKey};
use crate::event::EventId;
use crate::ports::{UnitOfWork, UnitOfWorkFactory};

pub use expiry::expiry_contract;

use Claim::{AlreadyProcessed, Fresh};

/// Runs every rule of the contract against a store; panics at the first that is broken. It uses ids of its own, so
/// the store need not be empty.
pub async fn store_contract<F: UnitOfWorkFactory>(store: &F) {
    a_committed_claim_is_found_again(store).await;
    a_dropped_unit_leaves_nothing(store).await;
    groups_do_not_see_each_other(store).await;
    answers_come_in_the_order_asked(store).await;
    a_released_key_is_free_for_the_next_unit(store).await;
    a_claim_waits_for_an_open_unit_that_commits(store).await;
    a_claim_waits_for_an_open_unit_that_is_dropped(store).await;
    nothing_to_claim_is_no_error(store).await;
    the_clock_answers_and_does_not_go_back(store).await;
    positions::keep_the_contract(store).await;
    marks::keep_the_contract(store).await;
}

fn keys(count: usize) -> Vec<DedupKey> {
    let group = ConsumerGroup::new("contract");
    let mut keys: Vec<_> = (0..count).map(|_| DedupKey::new(EventId::generate(), group.clone())).collect();
    keys.sort();
    keys
}

/// A group that no other run of the contract has used.
fn new_group() -> ConsumerGroup {
    ConsumerGroup::new(format!("contract {}", EventId::generate()))
}

async fn open<F: UnitOfWorkFactory>(store: &F) -> F::Unit {
    store.begin().await.expect("a unit opens")
}

async fn claim<U: UnitOfWork>(unit: &mut U, keys: &[DedupKey]) -> Vec<Claim> {
    unit.claim(keys).await.expect("the store claims")
}

async fn commit<U: UnitOfWork>(unit: U) {
    unit.commit().await.expect("the unit commits");
}

async fn a_committed_claim_is_found_again<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(1);
    let mut first = open(store).await;
    assert_eq!(claim(&mut first, &keys).await, [Fresh]);
    commit(first).await;
    let mut second = open(store).await;
    assert_eq!(claim(&mut second, &keys).await, [AlreadyProcessed]);
    commit(second).await;
}

async fn a_dropped_unit_leaves_nothing<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(1);
    let mut first = open(store).await;
    assert_eq!(claim(&mut first, &keys).await, [Fresh]);
    drop(first);
    assert_eq!(claim(&mut open(store).await, &keys).await, [Fresh]);
}

async fn groups_do_not_see_each_other<F: UnitOfWorkFactory>(store: &F) {
    let event = EventId::generate();
    for group in ["contract-a", "contract-b"] {
        let mut unit = open(store).await;
        let key = DedupKey::new(event, ConsumerGroup::new(group));
        assert_eq!(claim(&mut unit, &[key]).await, [Fresh]);
        commit(unit).await;
    }
}

async fn answers_come_in_the_order_asked<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(5);
    let mut first = open(store).await;
    let odd = [keys[1].clone(), keys[3].clone()];
    assert_eq!(claim(&mut first, &odd).await, [Fresh, Fresh]);
    commit(first).await;
    let mut second = open(store).await;
    let expected = [Fresh, AlreadyProcessed, Fresh, AlreadyProcessed, Fresh];
    assert_eq!(claim(&mut second, &keys).await, expected);
    commit(second).await;
}

async fn a_released_key_is_free_for_the_next_unit<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(3);
    let mut first = open(store).await;
    assert_eq!(claim(&mut first, &keys).await, [Fresh; 3]);
    first.release(&keys[1..2]).await.expect("the store releases");
    commit(first).await;
    let mut second = open(store).await;
    assert_eq!(claim(&mut second, &keys).await, [AlreadyProcessed, Fresh, AlreadyProcessed]);
}

async fn a_claim_waits_for_an_open_unit_that_commits<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(2);
    let (mut first, mut second) = (open(store).await, open(store).await);
    assert_eq!(claim(&mut first, &keys).await, [Fresh; 2]);
    let (answers, ()) = join!(claim(&mut second, &keys), commit(first));
    assert_eq!(answers, [AlreadyProcessed; 2]);
}

async fn a_claim_waits_for_an_open_unit_that_is_dropped<F: UnitOfWorkFactory>(store: &F) {
    let keys = keys(2);
    let (mut first, mut second) = (open(store).await, open(store).await);
    assert_eq!(claim(&mut first, &keys).await, [Fresh; 2]);
    let (answers, ()) = join!(claim(&mut second, &keys), async { drop(first) });
    assert_eq!(answers, [Fresh; 2]);
}

async fn nothing_to_claim_is_no_error<F: UnitOfWorkFactory>(store: &F) {
    let mut unit = open(store).await;
    assert_eq!(claim(&mut unit, &[]).await, []);
    unit.release(&[]).await.expect("nothing is released");
    commit(unit).await;
}

async fn the_clock_answers_and_does_not_go_back<F: UnitOfWorkFactory>(store: &F) {
    let first = store.now().await.expect("the store's clock");
    let second = store.now().await.expect("the store's clock");
    assert!(first <= second, "{first:?} was followed by {second:?}");
}
