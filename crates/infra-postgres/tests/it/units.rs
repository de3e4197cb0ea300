//! Units: all or nothing, and gone at once.

use core_delivery::claim::Claim::Fresh;
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use futures::FutureExt;
use infra_postgres::{PgStore, store_error};

use crate::world::*;

#[tokio::test]
async fn a_dropped_unit_leaves_nothing_and_lets_go_of_its_locks_at_once() {
    let world = World::new().await;
    let keys = keys(100);
    let mut unit = world.begin().await;
    unit.claim(&keys).await.expect("claim");
    drop(unit);
    // Within the lock timeout of five seconds, or the claim would be a conflict.
    assert_eq!(soon(world.claimed(&keys)).await, [Fresh; 100]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_may_be_dropped_on_a_thread_without_runtime() {
    let world = World::new().await;
    let keys = keys(3);
    let mut unit = world.begin().await;
    unit.claim(&keys).await.expect("claim");
    std::thread::spawn(move || drop(unit)).join().expect("no panic");
    assert_eq!(soon(world.claimed(&keys)).await, [Fresh; 3]);
}

#[tokio::test]
async fn a_unit_of_which_the_caller_did_not_hear_the_claim_cannot_commit() {
    let world = World::new().await;
    let key = key();
    let mut holder = world.begin().await;
    holder.claim(std::slice::from_ref(&key)).await.expect("claim");
    let mut unit = world.begin().await;
    {
        // Sent, and dropped while it waits for the holder.
        let mut claim = unit.claim(std::slice::from_ref(&key));
        until("the claim waits", || {
            assert!((&mut claim).now_or_never().is_none());
            async { world.waiting().await == 1 }
        })
        .await;
    }
    drop(holder);
    assert_unavailable(unit.commit().await);
    assert_eq!(world.claimed(&[key]).await, [Fresh]);
}

#[tokio::test]
async fn a_commit_whose_caller_goes_away_is_finished() {
    let world = World::new().await;
    let mut unit = world.begin().await;
    unit.claim(&keys(3)).await.expect("claim");
    let mut commit = unit.commit();
    assert!((&mut commit).now_or_never().is_none());
    drop(commit);
    until("the claims are there", || async { world.stored().await == 3 }).await;
}

#[tokio::test]
async fn the_application_s_rows_and_the_claims_are_stored_together_or_not_at_all() {
    let world = World::new().await;
    world.run("create table thing (name text primary key)").await;
    for commit in [false, true] {
        let mut unit = world.begin().await;
        unit.claim(&keys(1)).await.expect("claim");
        sqlx::query("insert into thing values ('one')").execute(unit.connection()).await.expect("insert");
        if commit {
            unit.commit().await.expect("commit");
        } else {
            drop(unit);
        }
        let things: i64 =
            sqlx::query_scalar("select count(*) from thing").fetch_one(&world.units).await.expect("count");
        assert_eq!((things, world.stored().await), if commit { (1, 1) } else { (0, 0) });
    }
}

#[tokio::test]
async fn a_commit_after_a_swallowed_error_fails_and_stores_nothing() {
    let world = World::new().await;
    world.run("create table thing (name text primary key); insert into thing values ('one')").await;
    let mut unit = world.begin().await;
    unit.claim(&keys(1)).await.expect("claim");
    let error = sqlx::query("insert into thing values ('one')").execute(unit.connection()).await.expect_err("there");
    assert_rejected(Err::<(), _>(store_error("insert a thing", error)));
    assert_unavailable(unit.commit().await);
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn a_commit_after_a_failed_claim_fails_in_the_same_way() {
    let world = World::new().await;
    let mut unit = world.begin().await;
    unit.claim(&keys(1)).await.expect("claim");
    let nul = key_of(core_delivery::event::EventId::generate(), "nul\0");
    assert_rejected(unit.claim(std::slice::from_ref(&nul)).await);
    assert_rejected(unit.claim(&keys(1)).await);
    assert_rejected(unit.commit().await);
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn a_deferred_constraint_that_refuses_at_commit_is_rejected() {
    let world = World::new().await;
    world.run("create table thing (name text, constraint uq unique (name) deferrable initially deferred)").await;
    let mut unit = world.begin().await;
    unit.claim(&keys(1)).await.expect("claim");
    sqlx::query("insert into thing values ('one'), ('one')").execute(unit.connection()).await.expect("insert");
    assert_rejected(unit.commit().await);
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn an_error_inside_a_savepoint_harms_nothing() {
    use sqlx::Connection as _;
    let world = World::new().await;
    let keys = keys(2);
    let mut unit = world.begin().await;
    unit.claim(&keys).await.expect("claim");
    let mut savepoint = unit.connection().begin().await.expect("savepoint");
    sqlx::raw_sql("select nonsense").execute(&mut *savepoint).await.expect_err("no such column");
    savepoint.rollback().await.expect("rollback");
    unit.release(&keys[..1]).await.expect("release");
    unit.commit().await.expect("commit");
    assert_eq!(world.stored().await, 1);
}

#[tokio::test]
#[should_panic(expected = "a pool each")]
async fn units_and_maintenance_on_one_pool_are_refused() {
    let world = World::new().await;
    let _ = PgStore::new(world.units.clone(), world.units.clone());
}

#[tokio::test]
async fn a_thousand_cancelled_begins_leave_no_session_in_a_transaction() {
    let world = World::new().await;
    for number in 0..1_000_usize {
        // Polled a different number of times, and so dropped at every stage; in turn the store's own begin, and one
        // on the bare pool, as other code of the service may do it.
        let polls = number % 7;
        if number % 2 == 0 {
            poll_and_drop(world.store.begin(), polls).await;
        } else {
            poll_and_drop(world.units.begin(), polls).await;
        }
    }
    until("no session is in a transaction", || async { world.sessions("idle in transaction%").await == 0 }).await;
    // Nor does any session swallow the next borrower's autocommitted write.
    world.run("create table thing (number int)").await;
    for number in 0..60 {
        sqlx::query("insert into thing values ($1)").bind(number).execute(&world.units).await.expect("insert");
    }
    let things: i64 =
        sqlx::query_scalar("select count(*) from thing").fetch_one(&world.maintenance).await.expect("count");
    assert_eq!(things, 60);
}

async fn poll_and_drop<T>(begin: impl Future<Output = T>, polls: usize) {
    let mut begin = Box::pin(begin);
    for _ in 0..polls {
        if begin.as_mut().now_or_never().is_some() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
