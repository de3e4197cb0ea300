//! Claims: who is first, who waits, who is let in (D-1).

use std::sync::Arc;

use core_delivery::claim::Claim::{AlreadyProcessed, Fresh};
use core_delivery::event::EventId;
use core_delivery::ports::UnitOfWork;
use futures::future::join_all;

use crate::world::*;

#[tokio::test]
async fn the_first_claim_is_fresh_and_a_later_one_is_already_processed() {
    let world = World::new().await;
    let key = key();
    assert_eq!(world.claimed(std::slice::from_ref(&key)).await, [Fresh]);
    assert_eq!(world.claimed(&[key]).await, [AlreadyProcessed]);
    assert_eq!(world.stored().await, 1);
}

/// Trap 3: uniqueness holds over the whole table, not only within the period in which a claim was stored.
#[tokio::test]
async fn a_claim_that_was_stored_on_another_day_is_found_again() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[1, 40]).await;
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed, AlreadyProcessed]);
    assert_eq!(world.stored().await, 2);
}

#[tokio::test]
async fn answers_come_in_the_order_asked() {
    let world = World::new().await;
    let all = keys(2_000);
    let seen: Vec<_> = all.iter().step_by(3).cloned().collect();
    world.claimed(&seen).await;
    let answers = world.claimed(&all).await;
    for (place, answer) in answers.iter().enumerate() {
        let expected = if place % 3 == 0 { AlreadyProcessed } else { Fresh };
        assert_eq!(*answer, expected, "at {place}");
    }
    assert_eq!(world.claimed(&[]).await, []);
}

#[tokio::test]
async fn an_event_is_fresh_once_in_each_group() {
    let world = World::new().await;
    let event = EventId::generate();
    assert_eq!(world.claimed(&[key_of(event, "billing")]).await, [Fresh]);
    // The second group alone, then both in one claim together with a third.
    assert_eq!(world.claimed(&[key_of(event, "analytics")]).await, [Fresh]);
    let groups = ["analytics", "audit", "billing"].map(|group| key_of(event, group));
    assert_eq!(world.claimed(&groups).await, [AlreadyProcessed, Fresh, AlreadyProcessed]);
}

#[tokio::test]
async fn released_keys_can_be_claimed_by_another_unit() {
    let world = World::new().await;
    let keys = keys(10);
    let mut unit = world.begin().await;
    unit.claim(&keys).await.expect("claim");
    unit.release(&keys[..4]).await.expect("release");
    unit.commit().await.expect("commit");
    assert_eq!(world.stored().await, 6);

    let answers = world.claimed(&keys).await;
    assert_eq!(answers[..4], [Fresh; 4]);
    assert_eq!(answers[4..], [AlreadyProcessed; 6]);
}

#[tokio::test]
async fn claims_of_several_groups_are_released_each() {
    let world = World::new().await;
    let event = EventId::generate();
    let groups = ["analytics", "billing"].map(|group| key_of(event, group));
    let mut unit = world.begin().await;
    unit.claim(&groups).await.expect("claim");
    unit.release(&groups).await.expect("release");
    unit.commit().await.expect("commit");
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn a_committed_claim_cannot_be_released() {
    let world = World::new().await;
    let key = key();
    world.claimed(std::slice::from_ref(&key)).await;
    let mut unit = world.begin().await;
    assert_eq!(unit.claim(std::slice::from_ref(&key)).await.expect("claim"), [AlreadyProcessed]);
    assert_unavailable(unit.release(std::slice::from_ref(&key)).await);
    assert_unavailable(unit.commit().await);
    assert_eq!(world.claimed(&[key]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn of_twenty_claims_at_once_one_is_fresh() {
    let world = Arc::new(World::new().await);
    let key = key();
    let tasks = (0..20).map(|_| {
        let (world, key) = (Arc::clone(&world), key.clone());
        tokio::spawn(async move { world.claimed(&[key]).await[0] })
    });
    let answers = soon(join_all(tasks)).await;
    let fresh = answers.iter().filter(|answer| matches!(answer, Ok(Fresh))).count();
    assert_eq!(fresh, 1, "{answers:?}");
}

#[tokio::test]
async fn when_the_first_rolls_back_one_of_those_who_wait_is_fresh() {
    let world = Arc::new(World::new().await);
    let key = key();
    let mut first = world.begin().await;
    first.claim(std::slice::from_ref(&key)).await.expect("claim");
    let tasks: Vec<_> = (0..19)
        .map(|_| {
            let (world, key) = (Arc::clone(&world), key.clone());
            tokio::spawn(async move { world.claimed(&[key]).await[0] })
        })
        .collect();
    until("all wait", || async { world.waiting().await == 19 }).await;
    drop(first);
    let answers = soon(join_all(tasks)).await;
    let fresh = answers.iter().filter(|answer| matches!(answer, Ok(Fresh))).count();
    assert_eq!(fresh, 1, "{answers:?}");
}

#[tokio::test]
async fn a_key_that_is_released_lets_in_who_waits_for_it() {
    let world = Arc::new(World::new().await);
    let key = key();
    let mut first = world.begin().await;
    first.claim(std::slice::from_ref(&key)).await.expect("claim");
    let second = {
        let (world, key) = (Arc::clone(&world), key.clone());
        tokio::spawn(async move { world.claimed(&[key]).await[0] })
    };
    until("the second waits", || async { world.waiting().await == 1 }).await;
    first.release(&[key]).await.expect("release");
    first.commit().await.expect("commit");
    assert_eq!(soon(second).await.expect("claim"), Fresh);
}

#[tokio::test]
async fn units_that_claim_the_same_sorted_keys_never_deadlock() {
    let world = Arc::new(World::new().await);
    let keys = Arc::new(keys(500));
    for _ in 0..5 {
        let tasks = (0..6).map(|number| {
            let (world, keys) = (Arc::clone(&world), Arc::clone(&keys));
            tokio::spawn(async move {
                let mut unit = world.begin().await;
                // Different selections of the same keys, all in the same order.
                let mine: Vec<_> = keys.iter().skip(number).step_by(2).cloned().collect();
                unit.claim(&mine).await.expect("no conflict");
            })
        });
        for ended in soon(join_all(tasks)).await {
            ended.expect("no deadlock");
        }
    }
}

#[tokio::test]
async fn claim_and_release_touch_the_partitions_of_their_own_ids_only() {
    let world = World::new().await;
    let id = EventId::generate();
    for statement in [
        format!("delete from processed_event where event_id = any(array['{id}']::uuid[]) and consumer_group = 'g'"),
        format!("select from processed_event where event_id = '{id}'"),
    ] {
        let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("explain (costs off) {statement}")))
            .fetch_all(&world.maintenance)
            .await
            .expect("explain");
        let plan = plan.join("\n");
        assert!(plan.contains("_pkey") && !plan.contains("Append"), "{plan}");
    }
}
