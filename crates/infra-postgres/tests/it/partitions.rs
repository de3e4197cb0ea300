//! Partitions: there before they are needed, and made when they are not.

use std::sync::Arc;

use core_delivery::claim::Claim::{AlreadyProcessed, Fresh};
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use futures::future::join_all;
use infra_postgres::{PartitionDay, PartitionPlan, PgSettings, PgStore, connect, ensure_partitions};

use crate::world::*;

async fn count(world: &World) -> i64 {
    sqlx::query_scalar("select count(*) from pg_inherits where inhparent = 'processed_event'::regclass")
        .fetch_one(&world.maintenance)
        .await
        .expect("count")
}

#[tokio::test]
async fn a_claim_without_partition_makes_it_and_succeeds_when_run_again() {
    // One connection for units: the partition must not need a second one.
    let world = World::with(|settings| PgSettings { max_connections: 1, ..settings }).await;
    let before = count(&world).await;
    let keys = [key_in_days(-400), key_in_days(-399), key()];
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(&keys).await);
    assert_conflict(unit.commit().await);
    assert_eq!(world.claimed(&keys).await, [Fresh; 3]);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 3]);
    assert_eq!(count(&world).await, before + 2);
}

#[tokio::test]
async fn ten_units_without_partition_make_it_once_and_all_go_on() {
    let world = Arc::new(World::new().await);
    let before = count(&world).await;
    let key = key_in_days(-50);
    let tasks = (0..10).map(|_| {
        let (world, keys) = (Arc::clone(&world), [key.clone()]);
        tokio::spawn(async move {
            for _ in 0..3 {
                let mut unit = world.begin().await;
                match unit.claim(&keys).await {
                    Ok(answers) => {
                        unit.commit().await.expect("commit");
                        return answers[0];
                    }
                    Err(error) => assert_conflict(Err::<(), _>(error)),
                }
            }
            panic!("never ends");
        })
    });
    let answers = soon(join_all(tasks)).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Fresh))).count(), 1, "{answers:?}");
    assert_eq!((count(&world).await, world.stored().await), (before + 1, 1));
}

#[tokio::test]
async fn a_partition_is_made_beside_open_units() {
    let world = World::new().await;
    let mut open = world.begin().await;
    open.claim(&keys(5)).await.expect("claim");
    let made = soon(ensure_partitions(&world.maintenance, [PartitionDay::of(now().minus(DAY * 60))])).await;
    assert_eq!(made.expect("made"), 1);
    open.commit().await.expect("commit");
    assert_eq!(world.claimed(&[key_in_days(-60)]).await, [Fresh]);
}

const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

#[tokio::test]
async fn a_partition_that_cannot_be_made_is_the_error_of_the_claim() {
    let world = World::new().await;
    let role = format!("reader_of_{}", std::process::id());
    world.run(format!("drop role if exists {role}; create role {role}; set role none")).await;
    let options = PgSettings::new(with_option(&world.url, &format!("options=-c%20role%3D{role}")));
    let powerless = connect(&options).await.expect("connect");
    let store = PgStore::new(world.units.clone(), powerless);
    let mut unit = store.begin().await.expect("begin");
    assert_unavailable(unit.claim(&[key_in_days(-30)]).await);
    drop(unit);
    world.run(format!("drop role {role}")).await;
}

fn with_option(url: &str, option: &str) -> String {
    format!("{url}{}{option}", if url.contains('?') { '&' } else { '?' })
}

#[tokio::test]
async fn a_second_start_makes_nothing() {
    let world = World::new().await;
    let plan = PartitionPlan { back: 40, ahead: 3 };
    let made = ensure_partitions(&world.maintenance, plan.days(now())).await.expect("made");
    assert_eq!(made, 33);
    assert_eq!(ensure_partitions(&world.maintenance, plan.days(now())).await.expect("made"), 0);
}

#[tokio::test]
async fn a_detached_day_is_taken_back_with_its_claims() {
    let world = World::new().await;
    let keys = keys(1);
    world.claimed(&keys).await;
    let day = PartitionDay::of(keys[0].event_id().made_at());
    world.run(format!("alter table processed_event detach partition {}", day.name())).await;
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(&keys).await);
    drop(unit);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed]);
}
