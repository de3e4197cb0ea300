//! Removal by partitions: only what nobody needs, whatever happens meanwhile (D-9).

use std::sync::Arc;
use std::time::Duration;

use core_delivery::claim::Claim::{AlreadyProcessed, Expired, Fresh};
use core_delivery::claim::{ConsumerGroup, DedupKey};
use core_delivery::event::EventId;
use core_delivery::ports::UnitOfWork;
use infra_postgres::{
    DroppedPartitions, Kept, KeptPartition, Partition, PartitionDay, Removal, Retention, advance_floor,
    drop_expired_partitions, ensure_partitions,
};

use crate::world::*;

const WEEK: Retention = Retention { keep: Duration::from_secs(7 * 86_400), grace: Duration::ZERO };

async fn advanced(world: &World, group: &str) {
    advance_floor(&world.maintenance, &ConsumerGroup::new(group), WEEK, now()).await.expect("advanced");
}

async fn removed(world: &World, retention: Retention) -> DroppedPartitions {
    match drop_expired_partitions(&world.maintenance, retention).await.expect("removed") {
        Removal::Done(dropped) => dropped,
        Removal::HeldElsewhere => panic!("nobody else is at it"),
    }
}

fn day(key: &DedupKey) -> Partition {
    PartitionDay::of(key.event_id().made_at()).into()
}

fn kept(key: &DedupKey, reason: Kept) -> KeptPartition {
    KeptPartition { partition: day(key), reason }
}

fn needed_by(group: &str) -> Kept {
    Kept::NeededBy(ConsumerGroup::new(group))
}

/// Another event of the same day.
fn sibling(key: &DedupKey, group: &str) -> DedupKey {
    key_of(EventId::at(key.event_id().made_at(), *b"9876543210"), group)
}

async fn exists(world: &World, key: &DedupKey) -> bool {
    sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(day(key).name())
        .fetch_one(&world.maintenance)
        .await
        .expect("exists")
}

async fn half_detached(world: &World) -> bool {
    sqlx::query_scalar("select exists (select from pg_inherits where inhdetachpending)")
        .fetch_one(&world.maintenance)
        .await
        .expect("pending")
}

#[tokio::test]
async fn days_below_every_floor_go_and_nothing_else_does() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 15, 10, 6, 0]).await;
    assert_eq!(removed(&world, WEEK).await.dropped, []);
    advanced(&world, GROUP).await;
    let outcome = removed(&world, WEEK).await;
    assert_eq!(outcome.dropped, [day(&keys[0]), day(&keys[1])]);
    // The floor lies within the third day: an event of the rest of it may still be claimed.
    assert_eq!(outcome.kept, [kept(&keys[2], needed_by(GROUP))]);
    let answers = world.claimed(&keys).await;
    assert_eq!(answers, [Expired, Expired, AlreadyProcessed, AlreadyProcessed, AlreadyProcessed]);
    assert_eq!(world.claimed(&[sibling(&keys[0], GROUP)]).await, [Expired]);
    assert_eq!(removed(&world, WEEK).await.dropped, []);
    // Days to come have a partition, and keep it.
    let ahead = ensure_partitions(&world.maintenance, infra_postgres::PartitionPlan::default().days(now())).await;
    assert_eq!(ahead.expect("ensured"), 0);
}

#[tokio::test]
async fn a_group_keeps_the_days_that_hold_its_claims_until_its_own_floor_is_above() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 15, 10]).await;
    let other = aged(&world, "analytics", &[20]).await;
    advanced(&world, GROUP).await;
    let outcome = removed(&world, WEEK).await;
    assert_eq!(outcome.dropped, [day(&keys[1])]);
    assert_eq!(outcome.kept, [kept(&keys[0], needed_by("analytics")), kept(&keys[2], needed_by(GROUP))]);
    assert_eq!(world.claimed(&other).await, [AlreadyProcessed]);
    // Its floor within the day is not enough.
    advanced(&world, "analytics").await;
    assert_eq!(removed(&world, WEEK).await.kept[0], kept(&keys[0], needed_by("analytics")));
    aged(&world, "analytics", &[9]).await;
    advanced(&world, "analytics").await;
    assert_eq!(removed(&world, WEEK).await.dropped, [day(&keys[0])]);
    assert_eq!(world.claimed(&other).await, [Expired]);
    // A third group has no floor, and may claim an event of a day that is gone.
    let third = [sibling(&keys[0], "audit")];
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(&third).await);
    drop(unit);
    assert_eq!(world.claimed(&third).await, [Fresh]);
    assert_eq!(world.claimed(&[keys[0].clone()]).await, [Expired]);
}

#[tokio::test]
async fn a_day_into_which_something_was_written_lately_stays() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 10]).await;
    world.claimed(&[sibling(&keys[0], GROUP)]).await;
    advanced(&world, GROUP).await;
    let outcome = removed(&world, WEEK).await;
    assert_eq!(outcome.dropped, []);
    assert_eq!(outcome.kept[0], kept(&keys[0], Kept::WrittenLately));
}

#[tokio::test]
async fn a_floor_must_have_stood_for_the_grace_period() {
    let world = World::new().await;
    let hour = Retention::of(WEEK.keep);
    let keys = aged(&world, GROUP, &[20, 10]).await;
    advanced(&world, GROUP).await;
    assert_eq!(removed(&world, hour).await.dropped, []);
    world.run("update claim_floor set advanced_at = now() - interval '61 minutes'").await;
    // Moved again: what lay below the floor before may go all the same.
    aged(&world, GROUP, &[9]).await;
    advanced(&world, GROUP).await;
    assert_eq!(removed(&world, hour).await.dropped, [day(&keys[0])]);
}

#[tokio::test]
async fn empty_days_go_when_they_are_old() {
    let world = World::new().await;
    let keys = [key_in_days(-9), key_in_days(-6)];
    let days = keys.iter().map(|key| PartitionDay::of(key.event_id().made_at()));
    ensure_partitions(&world.maintenance, days).await.expect("made");
    assert_eq!(removed(&world, WEEK).await, DroppedPartitions { dropped: vec![day(&keys[0])], kept: vec![] });
    // With `back` as long as the retention, what is dropped is not made again.
    let plan = infra_postgres::PartitionPlan { back: 7, ahead: 0 };
    assert_eq!(ensure_partitions(&world.maintenance, plan.days(now())).await.expect("ensured"), 0);
}

/// Days long past share a partition, which goes as a whole.
#[tokio::test]
async fn a_partition_of_many_days_goes_when_the_floor_stands_above_all_of_them() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[900, 500, 10]).await;
    aged(&world, "analytics", &[500]).await;
    advanced(&world, GROUP).await;
    let outcome = removed(&world, WEEK).await;
    assert_eq!(outcome.dropped.len(), 1, "{outcome:?}");
    assert_eq!(outcome.kept[0].reason, needed_by("analytics"));
    assert_eq!(world.claimed(&keys).await, [Expired, AlreadyProcessed, AlreadyProcessed]);
    aged(&world, "analytics", &[9]).await;
    advanced(&world, "analytics").await;
    assert_eq!(removed(&world, WEEK).await.dropped.len(), 1);
    assert_eq!(world.claimed(&keys).await, [Expired, Expired, AlreadyProcessed]);
}

/// A day that may go, a unit that is open beside it, and a removal that waits for the unit.
struct Waiting {
    world: Arc<World>,
    keys: Vec<DedupKey>,
    open: infra_postgres::PgUnit,
    removal: tokio::task::JoinHandle<DroppedPartitions>,
}

async fn waiting() -> Waiting {
    let world = Arc::new(World::new().await);
    let keys = aged(&world, GROUP, &[20, 10]).await;
    advanced(&world, GROUP).await;
    let mut open = world.begin().await;
    open.claim(&self::keys(5)).await.expect("claim");
    let removal = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { removed(&world, WEEK).await })
    };
    until("the removal waits for the unit", || async { world.waiting().await == 1 && half_detached(&world).await })
        .await;
    Waiting { world, keys, open, removal }
}

fn keys(count: usize) -> Vec<DedupKey> {
    crate::world::keys(count)
}

/// Ends the server's side of a removal, as if its process had died.
async fn cut_off(waiting: &Waiting) {
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and query like 'alter table%concurrently'";
    waiting.world.run(cut).await;
    until("it is cut off", || async { waiting.removal.is_finished() }).await;
    assert!(half_detached(&waiting.world).await);
}

#[tokio::test]
async fn claims_go_on_while_a_day_is_removed_and_a_second_node_leaves_it_alone() {
    let Waiting { world, keys, open, removal } = waiting().await;
    for _ in 0..5 {
        assert_eq!(soon(world.claimed(&self::keys(100))).await, [Fresh; 100]);
        assert_eq!(soon(world.claimed(&keys[..1])).await, [Expired]);
    }
    let second = soon(drop_expired_partitions(&world.maintenance, WEEK)).await.expect("asked");
    assert_eq!(second, Removal::HeldElsewhere);
    open.commit().await.expect("commit");
    assert_eq!(soon(removal).await.expect("no panic").dropped, [day(&keys[0])]);
    assert!(matches!(drop_expired_partitions(&world.maintenance, WEEK).await, Ok(Removal::Done(_))));
}

#[tokio::test]
async fn a_claim_that_gets_in_at_the_last_moment_is_not_lost() {
    let Waiting { world, keys, mut open, removal } = waiting().await;
    // The unit's view of the partitions is as new as its statement, so it can no more write there. One that could has
    // written before the detaching began: that is what this row stands for.
    let late = sibling(&keys[0], "audit");
    let sql = format!(
        "insert into {} (event_id, consumer_group) values ('{}', 'audit')",
        day(&keys[0]).name(),
        late.event_id()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(open.connection()).await.expect("insert");
    open.commit().await.expect("commit");
    let outcome = soon(removal).await.expect("no panic");
    assert_eq!((outcome.dropped, &outcome.kept[0]), (vec![], &kept(&keys[0], Kept::WrittenLately)));
    assert_eq!(world.claimed(&[late]).await, [AlreadyProcessed]);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 2]);
}

#[tokio::test]
async fn a_removal_that_was_cut_off_while_it_waited_is_taken_up() {
    let waiting = waiting().await;
    cut_off(&waiting).await;
    let Waiting { world, keys, open, .. } = waiting;
    assert_eq!(world.claimed(&keys[..1]).await, [Expired]);
    drop(open);
    assert_eq!(soon(removed(&world, WEEK)).await.dropped, [day(&keys[0])]);
    assert!(!exists(&world, &keys[0]).await);
}

#[tokio::test]
async fn a_claim_needs_no_operator_to_get_a_half_detached_day_back() {
    let waiting = waiting().await;
    cut_off(&waiting).await;
    let Waiting { world, keys, open, .. } = waiting;
    open.commit().await.expect("commit");
    let other = [sibling(&keys[0], "audit")];
    let mut unit = world.begin().await;
    assert_conflict(soon(unit.claim(&other)).await);
    drop(unit);
    assert_eq!(world.claimed(&other).await, [Fresh]);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 2]);
    assert_eq!(removed(&world, WEEK).await.kept[0], kept(&keys[0], Kept::WrittenLately));
}

#[tokio::test]
async fn a_removal_that_was_cut_off_before_the_drop_is_taken_up() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 15, 10]).await;
    aged(&world, "analytics", &[15]).await;
    advanced(&world, GROUP).await;
    for key in &keys[..2] {
        let name = day(key).name();
        world.run(format!("comment on table {name} is 'delivery: detached to be dropped'")).await;
        world.run(format!("alter table processed_event detach partition {name} concurrently")).await;
    }
    let outcome = removed(&world, WEEK).await;
    assert_eq!(outcome.dropped, [day(&keys[0])]);
    // Looked at anew, and attached again.
    assert_eq!(outcome.kept[0], kept(&keys[1], needed_by("analytics")));
    assert_eq!(world.claimed(&keys[1..2]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn a_table_that_an_operator_detached_is_left_alone() {
    let world = World::new().await;
    let keys = aged(&world, GROUP, &[20, 10]).await;
    advanced(&world, GROUP).await;
    world.run(format!("alter table processed_event detach partition {}", day(&keys[0]).name())).await;
    world.run("create table processed_event_p20010230 (); create table processed_event_pages ()").await;
    assert_eq!(removed(&world, WEEK).await.dropped, []);
    assert!(exists(&world, &keys[0]).await);
}

#[tokio::test]
async fn a_claim_that_read_the_floor_before_it_moved_is_safe_within_the_grace_period() {
    let world = Arc::new(World::new().await);
    let keys = aged(&world, GROUP, &[20, 10]).await;
    // This claim has read that there is no floor, and waits for a unit that holds another of its keys.
    let held = key();
    let mut holder = world.begin().await;
    holder.claim(std::slice::from_ref(&held)).await.expect("claim");
    let claim = {
        let (world, asked) = (Arc::clone(&world), [sibling(&keys[0], GROUP), held.clone(), keys[0].clone()]);
        let mut asked = asked.to_vec();
        asked.sort();
        tokio::spawn(async move { (world.claimed(&asked).await, asked) })
    };
    until("it waits", || async { world.waiting().await == 1 }).await;
    advanced(&world, GROUP).await;
    let hour = Retention::of(WEEK.keep);
    assert_eq!(removed(&world, hour).await.dropped, []);
    holder.commit().await.expect("commit");
    let (answers, asked) = soon(claim).await.expect("no panic");
    for (answer, key) in answers.iter().zip(&asked) {
        let expected = if *key == sibling(&keys[0], GROUP) { Fresh } else { AlreadyProcessed };
        assert_eq!(*answer, expected);
    }
    // What it wrote is young, and keeps its day.
    assert_eq!(removed(&world, WEEK).await.kept[0], kept(&keys[0], Kept::WrittenLately));
}
