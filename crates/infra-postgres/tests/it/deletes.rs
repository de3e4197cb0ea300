//! Removal row by row: what is old and below its group's floor, beside claims that go on (D-9).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use core_delivery::claim::Claim::{AlreadyProcessed, Expired, Fresh};
use core_delivery::claim::{ConsumerGroup, DedupKey};
use core_delivery::event::EventId;
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use infra_postgres::{
    DeletedClaims, PartitionDay, Removal, Retention, advance_floor, delete_expired_claims, ensure_partitions,
};

use crate::world::*;

const WEEK: Retention = Retention { keep: Duration::from_secs(7 * 86_400), grace: Duration::ZERO };

async fn advanced(world: &World, group: &str) {
    advance_floor(&world.maintenance, &ConsumerGroup::new(group), WEEK, now()).await.expect("advanced");
}

async fn deleted(world: &World, retention: Retention, batch: u32) -> Vec<(String, u64)> {
    let goes_on = |_: &DeletedClaims| ControlFlow::Continue(());
    match delete_expired_claims(&world.maintenance, retention, batch, goes_on).await.expect("deleted") {
        Removal::Done(groups) => groups.into_iter().map(|of| (of.group.as_str().to_owned(), of.claims)).collect(),
        Removal::HeldElsewhere => panic!("nobody else is at it"),
    }
}

fn of_group(claims: u64) -> Vec<(String, u64)> {
    vec![(GROUP.to_owned(), claims)]
}

/// So many claims that may go, of one day.
async fn old_claims(world: &World, group: &str, count: u128) -> Vec<DedupKey> {
    let first = key_in_days(-20).event_id().as_uuid().as_u128();
    let day = PartitionDay::of(key_in_days(-20).event_id().made_at());
    ensure_partitions(&world.maintenance, [day]).await.expect("partitions");
    let event = |number| EventId::try_from(uuid::Uuid::from_u128(first + number)).expect("an event id");
    let keys: Vec<_> = (0..count).map(|number| key_of(event(number), group)).collect();
    world.claimed(&keys).await;
    world
        .run(format!(
            "update processed_event set processed_at = now() - interval '20 days' where consumer_group = '{group}'"
        ))
        .await;
    keys
}

#[tokio::test]
async fn what_is_old_and_below_the_floor_goes_and_nothing_else_does() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 10, 6, 0]).await;
    let other = aged(&world, "analytics", &[20]).await;
    assert_eq!(deleted(&world, WEEK, 10).await, []);
    advanced(&world, GROUP).await;
    // Below the floor, and stored lately.
    let late = key_of(EventId::first_at(keys[0].event_id().made_at()), "analytics");
    world.claimed(std::slice::from_ref(&late)).await;
    world
        .run(format!("update processed_event set consumer_group = '{GROUP}' where event_id = '{}'", late.event_id()))
        .await;
    assert_eq!(deleted(&world, WEEK, 10).await, of_group(2));
    let answers = world.claimed(&keys).await;
    assert_eq!(answers, [Expired, Expired, AlreadyProcessed, AlreadyProcessed]);
    assert_eq!(world.claimed(&other).await, [AlreadyProcessed]);
    assert_eq!(world.claimed(&[key_of(late.event_id(), GROUP)]).await, [AlreadyProcessed]);
    assert_eq!(deleted(&world, WEEK, 10).await, of_group(0));
}

#[tokio::test]
async fn batches_of_every_size_delete_the_same() {
    for (batch, claims, steps) in [(1, 3, 4), (3, 7, 3), (3, 6, 3), (7, 7, 2), (8, 7, 1), (0, 2, 3)] {
        let world = World::new().await;
        old_claims(&world, GROUP, claims).await;
        advanced(&world, GROUP).await;
        let mut seen = Vec::new();
        let progress = |of: &DeletedClaims| {
            seen.push(of.claims);
            ControlFlow::Continue(())
        };
        let outcome = delete_expired_claims(&world.maintenance, WEEK, batch, progress).await.expect("deleted");
        let all = vec![DeletedClaims { group: ConsumerGroup::new(GROUP), claims: claims as u64 }];
        assert_eq!(outcome, Removal::Done(all));
        assert!(seen.len() == steps && seen.is_sorted() && seen.last() == Some(&(claims as u64)), "{batch}: {seen:?}");
        assert_eq!(world.stored().await, 0);
    }
}

#[tokio::test]
async fn a_run_can_be_ended_between_batches_and_the_next_one_goes_on() {
    let world = World::new().await;
    old_claims(&world, GROUP, 10).await;
    advanced(&world, GROUP).await;
    let stop = |_: &DeletedClaims| ControlFlow::Break(());
    let outcome = delete_expired_claims(&world.maintenance, WEEK, 4, stop).await.expect("deleted");
    assert!(matches!(outcome, Removal::Done(groups) if groups[0].claims == 4));
    assert_eq!(deleted(&world, WEEK, 4).await, of_group(6));
}

#[tokio::test]
async fn a_floor_must_have_stood_for_the_grace_period() {
    let world = World::new().await;
    let hour = Retention::of(WEEK.keep);
    aged(&world, GROUP, &[20]).await;
    advanced(&world, GROUP).await;
    assert_eq!(deleted(&world, hour, 10).await, []);
    world.run("update claim_floor set advanced_at = now() - interval '61 minutes'").await;
    aged(&world, GROUP, &[10]).await;
    advanced(&world, GROUP).await;
    // Moved again: by the floor before, one of the two may go.
    assert_eq!(deleted(&world, hour, 10).await, of_group(1));
}

#[tokio::test]
async fn of_two_nodes_one_deletes() {
    let world = World::new().await;
    old_claims(&world, GROUP, 10).await;
    advanced(&world, GROUP).await;
    // The first is stopped in its work by a lock on the first claim.
    let mut holder = world.maintenance.begin().await.expect("begin");
    sqlx::raw_sql("select from processed_event for update").execute(&mut *holder).await.expect("lock");
    let first = {
        let pool = world.maintenance.clone();
        tokio::spawn(async move { delete_expired_claims(&pool, WEEK, 4, |_| ControlFlow::Continue(())).await })
    };
    until("it waits", || async { world.waiting().await == 1 }).await;
    let second = delete_expired_claims(&world.maintenance, WEEK, 4, |_| ControlFlow::Continue(())).await;
    assert_eq!(second.expect("asked"), Removal::HeldElsewhere);
    holder.rollback().await.expect("rollback");
    assert!(matches!(soon(first).await.expect("no panic"), Ok(Removal::Done(groups)) if groups[0].claims == 10));
}

#[tokio::test]
async fn a_claim_waits_for_no_row_that_is_being_deleted() {
    let world = World::new().await;
    let keys = old_claims(&world, GROUP, 10).await;
    advanced(&world, GROUP).await;
    let mut deleting = world.maintenance.begin().await.expect("begin");
    sqlx::raw_sql("delete from processed_event").execute(&mut *deleting).await.expect("delete");
    assert_eq!(soon(world.claimed(&keys)).await, [AlreadyProcessed; 10]);
    deleting.commit().await.expect("commit");
    assert_eq!(soon(world.claimed(&keys)).await, [Expired; 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_fresh_twice_while_floors_move_and_claims_go() {
    let world = Arc::new(World::new().await);
    let retention = Retention { grace: Duration::from_secs(2), ..WEEK };
    let keys = Arc::new(old_claims(&world, GROUP, 300).await);
    let fresh = Arc::new(Mutex::new(BTreeMap::<DedupKey, u32>::new()));
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let units: Vec<_> = (0..4_usize)
        .map(|number| {
            let (world, old, fresh, done) =
                (Arc::clone(&world), Arc::clone(&keys), Arc::clone(&fresh), Arc::clone(&done));
            tokio::spawn(async move {
                let mut round = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    let mut asked: Vec<_> = old.iter().skip((number + round) % 5).step_by(5).cloned().collect();
                    asked.extend(self::keys(5));
                    let mut unit = world.store.begin().await.expect("begin");
                    let answers = unit.claim(&asked).await.expect("claim");
                    unit.commit().await.expect("commit");
                    for (key, answer) in asked.into_iter().zip(answers) {
                        *fresh.lock().expect("not poisoned").entry(key).or_default() += u32::from(answer == Fresh);
                    }
                }
            })
        })
        .collect();
    advance_floor(&world.maintenance, &ConsumerGroup::new(GROUP), retention, now()).await.expect("advanced");
    until("all are deleted", || async { deleted(&world, retention, 50).await == of_group(300) }).await;
    assert_eq!(world.claimed(&keys).await, [Expired; 300]);
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for unit in units {
        soon(unit).await.expect("no panic");
    }
    let fresh = fresh.lock().expect("not poisoned");
    // The old ones were claimed before the units began.
    let wrong: Vec<_> = fresh.iter().filter(|(key, count)| **count != u32::from(!keys.contains(key))).collect();
    assert!(wrong.is_empty() && fresh.len() > 300, "{wrong:?}");
}
