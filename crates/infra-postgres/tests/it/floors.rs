//! Floors: what may be gone is never claimed again, and nothing else is refused (D-9).

use std::time::Duration;

use core_delivery::claim::Claim::{AlreadyProcessed, Expired, Fresh};
use core_delivery::claim::ConsumerGroup;
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use infra_postgres::{FloorMove, Retention, advance_floor, database_clock};

use crate::world::*;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Retention = Retention { keep: Duration::from_secs(7 * 86_400), grace: Duration::ZERO };

async fn advanced(world: &World, group: &str, retention: Retention) -> FloorMove {
    advance_floor(&world.maintenance, &ConsumerGroup::new(group), retention, now()).await.expect("advanced")
}

async fn set_floor(world: &World, group: &str, floor: EventId) {
    world.run(format!("insert into claim_floor (consumer_group, floor) values ('{group}', '{floor}')")).await;
}

#[tokio::test]
async fn below_the_floor_a_known_event_is_a_duplicate_and_an_unknown_one_is_expired() {
    let world = World::new().await;
    let known = aged(&world, GROUP, &[9]).await.remove(0);
    let fresh = key();
    let unknown = key_of(EventId::first_at(known.event_id().made_at().minus(DAY * 100)), GROUP);
    set_floor(&world, GROUP, EventId::first_at(now().minus(DAY))).await;
    // The unknown one has no partition, and needs none.
    let asked = [unknown, known, fresh];
    assert_eq!(world.claimed(&asked).await, [Expired, AlreadyProcessed, Fresh]);
    assert_eq!(world.claimed(&asked).await, [Expired, AlreadyProcessed, AlreadyProcessed]);
    assert_eq!(world.claimed(&asked[..1]).await, [Expired]);
    assert_eq!(world.stored().await, 2);
}

#[tokio::test]
async fn an_event_at_the_floor_is_claimed_and_the_one_before_it_is_not() {
    let world = World::new().await;
    let floor = EventId::first_at(now());
    let before = EventId::at(UnixMillis(floor.made_at().0 - 1), [255; 10]);
    set_floor(&world, GROUP, floor).await;
    assert_eq!(world.claimed(&[key_of(before, GROUP), key_of(floor, GROUP)]).await, [Expired, Fresh]);
}

#[tokio::test]
async fn a_floor_holds_for_its_own_group_only() {
    let world = World::new().await;
    let event = EventId::generate();
    set_floor(&world, "billing", EventId::first_at(now().plus(DAY))).await;
    let groups = ["analytics", "billing"].map(|group| key_of(event, group));
    assert_eq!(world.claimed(&groups).await, [Fresh, Expired]);
    assert_eq!(world.claimed(&groups[..1]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn an_expired_event_holds_nothing_that_could_be_released() {
    let world = World::new().await;
    set_floor(&world, GROUP, EventId::first_at(now().plus(DAY))).await;
    let keys = keys(1);
    let mut unit = world.begin().await;
    assert_eq!(unit.claim(&keys).await.expect("claim"), [Expired]);
    assert_unavailable(unit.release(&keys).await);
}

#[tokio::test]
async fn a_floor_moves_just_above_what_may_be_removed_and_never_back() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[30, 12, 8, 3]).await;
    let (eight, twelve) = (keys[2].event_id(), keys[1].event_id());
    let above = |id: EventId| EventId::first_at(UnixMillis(id.made_at().0 + 1));
    let keep = |days| Retention { keep: DAY * days, ..WEEK };
    let moved = advanced(&world, GROUP, keep(10)).await;
    assert_eq!(moved, FloorMove::Moved { from: None, to: above(twelve) });
    let moved = advanced(&world, GROUP, WEEK).await;
    assert_eq!(moved, FloorMove::Moved { from: Some(above(twelve)), to: above(eight) });
    for days in [7, 10, 20] {
        assert_eq!(advanced(&world, GROUP, keep(days)).await, FloorMove::Unneeded);
    }
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 4]);
    assert_eq!(world.claimed(&[key_in_days(-6)]).await, [Fresh]);
}

#[tokio::test]
async fn a_group_of_which_nothing_is_old_enough_has_no_floor() {
    let world = World::new().await;
    aged(&world, "analytics", &[30]).await;
    assert_eq!(advanced(&world, GROUP, WEEK).await, FloorMove::Unneeded);
    // Old events that were handled today: a backlog. Their claims are needed for a week from now.
    let old = aged(&world, GROUP, &[30, 29]).await;
    world.run(format!("update processed_event set processed_at = now() where consumer_group = '{GROUP}'")).await;
    assert_eq!(advanced(&world, GROUP, WEEK).await, FloorMove::Unneeded);
    assert_eq!(world.claimed(&old).await, [AlreadyProcessed; 2]);
    let older = key_of(EventId::first_at(old[0].event_id().made_at()), GROUP);
    assert_eq!(world.claimed(&[older]).await, [Fresh]);
}

#[tokio::test]
async fn a_floor_moves_once_in_a_grace_period() {
    let world = World::new().await;
    let hour = Retention::of(WEEK.keep);
    aged(&world, GROUP, &[9]).await;
    assert!(matches!(advanced(&world, GROUP, hour).await, FloorMove::Moved { from: None, .. }));
    aged(&world, GROUP, &[8]).await;
    assert_eq!(advanced(&world, GROUP, hour).await, FloorMove::Resting);
    world.run("update claim_floor set advanced_at = now() - interval '61 minutes'").await;
    assert!(matches!(advanced(&world, GROUP, hour).await, FloorMove::Moved { from: Some(_), .. }));
}

#[tokio::test]
async fn of_many_nodes_one_moves_the_floor() {
    let world = World::new().await;
    aged(&world, GROUP, &[9]).await;
    let moves = (0..8).map(|_| advanced(&world, GROUP, Retention::of(WEEK.keep)));
    let moves = soon(futures::future::join_all(moves)).await;
    let moved = moves.iter().filter(|moved| matches!(moved, FloorMove::Moved { .. })).count();
    assert_eq!(moved, 1, "{moves:?}");
    assert!(moves.iter().all(|moved| *moved != FloorMove::Unneeded), "{moves:?}");
}

#[tokio::test]
async fn a_local_clock_that_runs_ahead_moves_no_floor_too_far() {
    let world = World::new().await;
    aged(&world, GROUP, &[3]).await;
    let group = ConsumerGroup::new(GROUP);
    let moved = advance_floor(&world.maintenance, &group, WEEK, now().plus(DAY * 365)).await.expect("advanced");
    assert_eq!(moved, FloorMove::Unneeded);
    // A clock that runs behind is the safe side.
    aged(&world, GROUP, &[8]).await;
    let moved = advance_floor(&world.maintenance, &group, WEEK, now().minus(DAY * 2)).await.expect("advanced");
    assert_eq!(moved, FloorMove::Unneeded);
}

#[tokio::test]
async fn the_clock_of_the_database_can_be_read() {
    let world = World::new().await;
    let before = now().minus(Duration::from_secs(1));
    let read = [database_clock(&world.maintenance).await, world.store.now().await];
    let after = now().plus(Duration::from_secs(1));
    for read in read.map(|read| read.expect("clock")) {
        assert!(before <= read && read <= after, "{read:?} is not between {before:?} and {after:?}");
    }
}

#[tokio::test]
async fn claims_wait_for_no_floor_that_is_being_moved() {
    let world = World::new().await;
    set_floor(&world, GROUP, EventId::first_at(now().minus(DAY))).await;
    let mut moving = world.maintenance.begin().await.expect("begin");
    let later = EventId::first_at(now().plus(DAY));
    let sql = format!("update claim_floor set floor = '{later}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *moving).await.expect("update");
    assert_eq!(soon(world.claimed(&keys(3))).await, [Fresh; 3]);
    moving.commit().await.expect("commit");
    assert_eq!(world.claimed(&keys(1)).await, [Expired]);
}

#[tokio::test]
async fn the_claim_reads_its_floor_once_and_locks_the_partitions_of_its_own_ids_only() {
    let world = World::new().await;
    set_floor(&world, GROUP, EventId::first_at(now().minus(DAY * 3))).await;
    let key = key();
    let mut unit = world.begin().await;
    // Often enough for the server to take a plan that does not depend on the ids.
    for _ in 0..10 {
        unit.claim(std::slice::from_ref(&key)).await.expect("claim");
    }
    let prepared: Vec<(String, String)> =
        sqlx::query_as("select name, statement from pg_prepared_statements where statement like $1")
            .bind("%insert into processed_event%")
            .fetch_all(unit.connection())
            .await
            .expect("statements");
    let [(name, _)] = prepared.as_slice() else { panic!("one statement claims: {prepared:?}") };
    let id = key.event_id();
    let explain = format!("explain (costs off) execute {name}('{{{id}}}', '{GROUP}')");
    let plan: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_all(unit.connection()).await.expect("explain");
    let plan = plan.join("\n");
    assert!(plan.contains("Conflict Arbiter Indexes: pk_processed_event"), "{plan}");
    assert_eq!(plan.matches(" on claim_floor").count(), 1, "{plan}");
    assert!(!plan.contains("Scan on processed_event") && !plan.contains("Append"), "{plan}");
    let locked: Vec<String> = sqlx::query_scalar(
        "select distinct relation::regclass::text from pg_locks \
         where pid = pg_backend_pid() and relation::regclass::text like 'processed_event_p%' \
         and relation::regclass::text not like '%\\_key' and relation::regclass::text not like '%\\_idx' \
         and relation::regclass::text not like '%\\_pkey'",
    )
    .fetch_all(unit.connection())
    .await
    .expect("locks");
    assert_eq!(locked, [infra_postgres::PartitionDay::of(id.made_at()).name()]);
}
