//! The part of the contract that is about floors: an id below its group's floor is never claimed (D-9).

use std::time::Duration;

use super::{claim, commit, new_group, open};
use crate::claim::Claim::{AlreadyProcessed, Expired, Fresh};
use crate::claim::{ConsumerGroup, DedupKey};
use crate::event::EventId;
use crate::ports::UnitOfWorkFactory;

/// Runs the rules about floors against a store; panics at the first that is broken. How a floor is moved is each store's
/// own affair: `raise_floor` sets the group's to this id and removes no claim.
pub async fn expiry_contract<F: UnitOfWorkFactory>(store: &F, raise_floor: impl AsyncFnOnce(&ConsumerGroup, EventId)) {
    let group = new_group();
    let made_at = EventId::generate().made_at().minus(Duration::from_secs(3_600));
    let floor = EventId::first_at(made_at);
    let before = made_at.minus(Duration::from_millis(1));
    let ids = [EventId::at(before, [1; 10]), EventId::at(before, [2; 10]), floor, EventId::at(made_at, [1; 10])];
    let keys = ids.map(|id| DedupKey::new(id, group.clone()));
    assert!(keys.is_sorted(), "{keys:?}");

    let mut unit = open(store).await;
    assert_eq!(claim(&mut unit, &keys[..1]).await, [Fresh], "without a floor an id of any age is claimed");
    commit(unit).await;
    raise_floor(&group, floor).await;
    let mut unit = open(store).await;
    assert_eq!(claim(&mut unit, &keys).await, [AlreadyProcessed, Expired, Fresh, Fresh]);
    commit(unit).await;
    let mut unit = open(store).await;
    assert_eq!(claim(&mut unit, &keys).await, [AlreadyProcessed, Expired, AlreadyProcessed, AlreadyProcessed]);

    let other = new_group();
    let elsewhere = ids.map(|id| DedupKey::new(id, other.clone()));
    assert_eq!(claim(&mut open(store).await, &elsewhere).await, [Fresh; 4], "the floor is the group's own");
}
