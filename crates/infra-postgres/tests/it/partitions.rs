//! Partitions: there before they are needed, and made when they are not.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::claim::Claim::{AlreadyProcessed, Fresh};
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use futures::future::join_all;
use infra_postgres::{MAINTENANCE_LOCK, PartitionDay, PartitionPlan, PgSettings, PgStore, connect, ensure_partitions};

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
    let keys = [key_in_days(-50), key_in_days(-49), key()];
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

const DAY: Duration = Duration::from_secs(86_400);

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

/// A producer with a wrong clock, or one that makes ids of its own: they may come from any day since 1970.
#[tokio::test]
async fn ids_of_every_age_cost_a_partition_a_year_and_not_one_a_day() {
    let world = World::new().await;
    let before = count(&world).await;
    let spread = |step: i64| (1..800).map(move |number| key_in_days(-61 - number * step)).rev().collect::<Vec<_>>();
    for keys in [spread(25), spread(23)] {
        let mut unit = world.begin().await;
        if unit.claim(&keys).await.is_err() {
            drop(unit);
            assert_eq!(world.claimed(&keys[..400]).await.len(), 400, "whatever was missing was made at once");
            unit = world.begin().await;
            unit.claim(&keys).await.expect("nothing is missing any more");
        }
        unit.commit().await.expect("commit");
        assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 799]);
    }
    let made = count(&world).await - before;
    assert!((54..=57).contains(&made), "{made} partitions for 54 years and a bit");
}

/// Then its days are made one by one, and no event waits for an operator.
#[tokio::test]
async fn a_foreign_partition_in_the_year_of_an_old_id_is_left_alone() {
    let world = World::new().await;
    let keys = [key_in_days(-700), key_in_days(-699)];
    let own = format!(
        "create table own_days partition of processed_event for values from ('{}') to ('{}')",
        keys[1].event_id(),
        key_in_days(-698).event_id()
    );
    world.run(own).await;
    assert_eq!(world.claimed(&keys[1..]).await, [Fresh]);
    // At least one of them is of the same year.
    for days in [-705, -690] {
        let mut unit = world.begin().await;
        assert_conflict(unit.claim(&[key_in_days(days)]).await);
        drop(unit);
        assert_eq!(world.claimed(&[key_in_days(days)]).await, [Fresh]);
    }
}

/// Its claims count as soon as one of its ids comes again, so no other partition may take its place.
#[tokio::test]
async fn a_detached_day_among_those_that_are_shared_keeps_its_place() {
    let world = World::new().await;
    let key = key_in_days(-500);
    let name = PartitionDay::of(key.event_id().made_at()).name();
    world
        .run(format!(
            "create table {name} (like processed_event including defaults including constraints); \
             insert into {name} (event_id, consumer_group) values ('{}', '{GROUP}')",
            key.event_id()
        ))
        .await;
    for days in [-501, -499] {
        let mut unit = world.begin().await;
        drop(unit.claim(&[key_in_days(days)]).await);
        drop(unit);
        assert_eq!(world.claimed(&[key_in_days(days)]).await, [Fresh]);
    }
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(std::slice::from_ref(&key)).await);
    drop(unit);
    assert_eq!(world.claimed(&[key]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn a_shared_partition_that_was_detached_is_taken_back_with_its_claims() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[900, 500]).await;
    let shared = "select inhrelid::regclass::text from pg_inherits where inhparent = 'processed_event'::regclass \
                  and inhrelid::regclass::text like 'processed\\_event\\_p%\\_%'";
    let names: Vec<String> = sqlx::query_scalar(shared).fetch_all(&world.maintenance).await.expect("names");
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        world.run(format!("alter table processed_event detach partition {name}")).await;
    }
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(&keys).await);
    drop(unit);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 2]);
}

/// Whatever its sessions are held to, the maker of partitions bounds its own waiting.
#[tokio::test]
async fn a_turn_that_does_not_come_is_a_conflict_in_time() {
    let world = World::new().await;
    let unbounded =
        PgSettings { lock_timeout: Duration::ZERO, statement_timeout: Duration::ZERO, ..PgSettings::new(&world.url) };
    let store = PgStore::new(world.units.clone(), connect(&unbounded).await.expect("connect"));
    let mut holder = world.maintenance.acquire().await.expect("session");
    sqlx::query("select pg_advisory_lock($1)").bind(MAINTENANCE_LOCK).execute(&mut *holder).await.expect("lock");
    let mut unit = store.begin().await.expect("begin");
    assert_conflict(soon(unit.claim(&[key_in_days(-30)])).await);
    drop(unit);
    holder.close().await.expect("closed");
    let mut unit = store.begin().await.expect("begin");
    assert_conflict(soon(unit.claim(&[key_in_days(-30)])).await);
    drop(unit);
    assert_eq!(world.claimed(&[key_in_days(-30)]).await, [Fresh]);
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
