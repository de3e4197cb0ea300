//! The faults of the database and of the way to it.

use std::time::Duration;

use anyhow::Result;
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use testbed::{Loss, Mode};
use tokio::time::{Instant, sleep, timeout};

use super::world::{ROLE, SESSIONS, Stop, World};

/// The message that ends a transaction, as it goes over the wire.
const COMMIT: &[u8] = b"COMMIT\0";
/// How often something is done that is done again and again.
const BEAT: Duration = Duration::from_millis(100);
/// The tables that every unit writes, in its order.
const TABLES: [&str; 3] = ["processed_event", "charge", "consumer_position"];
/// How long we wait for a lock ourselves.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// A crash or a stop in order, and the start after it.
pub(super) async fn stop(world: &mut World, stop: Stop, lasts: Duration) -> Result<()> {
    world.stop_postgres(stop).await?;
    sleep(lasts).await;
    Ok(world.postgres.restart().await?)
}

/// Every session takes no writes, also those that are open.
pub(super) async fn read_only(world: &World, lasts: Duration) -> Result<()> {
    let mut admin = world.administrator().await?;
    run(&mut admin, "alter system set default_transaction_read_only = on").await?;
    run(&mut admin, "select pg_reload_conf()").await?;
    sleep(lasts).await;
    run(&mut admin, "alter system reset default_transaction_read_only").await?;
    run(&mut admin, "select pg_reload_conf()").await?;
    Ok(admin.close().await?)
}

/// The proxy is in this mode for a while. `Refuse` leaves open connections alone, so they are reset first.
pub(super) async fn proxy(world: &World, mode: Mode, lasts: Duration) -> Result<()> {
    if mode == Mode::Refuse {
        world.proxy.set(Mode::Reset).await?;
        sleep(BEAT).await;
    }
    world.proxy.set(mode).await?;
    sleep(lasts).await;
    world.proxy.set(Mode::Pass).await
}

/// Now and then a connection that sends COMMIT is lost before it arrives, after it, or stays mute.
pub(super) async fn lost_commits(world: &World, lasts: Duration, random: &mut StdRng) -> Result<()> {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        let loss = [Loss::Request, Loss::Reply, Loss::Reply, Loss::Silence].choose(random).expect("there are four");
        world.proxy.set_tripwire(COMMIT, *loss);
        sleep(3 * BEAT).await;
    }
    // Bytes that nobody sends take the last one away.
    world.proxy.set_tripwire(vec![0; 70_000], Loss::Reply);
    Ok(())
}

/// The service's sessions are ended (57P01), or their running statements cancelled (57014), again and again.
pub(super) async fn signal(world: &World, function: &str, lasts: Duration) -> Result<()> {
    let mut admin = world.administrator().await?;
    let signal = format!("select {function}(pid) from pg_stat_activity where usename = '{ROLE}' and state <> 'idle'");
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        run(&mut admin, &signal).await?;
        sleep(BEAT).await;
    }
    Ok(admin.close().await?)
}

/// Somebody holds a table of ours.
pub(super) async fn table_lock(world: &World, lasts: Duration, random: &mut StdRng) -> Result<()> {
    let table = TABLES.choose(random).expect("there are three");
    let mode = if random.random() { "access exclusive" } else { "exclusive" };
    let mut stranger = world.administrator().await?;
    run(&mut stranger, &format!("set lock_timeout = {}", LOCK_LIMIT.as_millis())).await?;
    run(&mut stranger, "begin").await?;
    // If no lock is to be had within the limit, there was none.
    if run(&mut stranger, &format!("lock table {table} in {mode} mode")).await.is_ok() {
        sleep(lasts).await;
    }
    run(&mut stranger, "rollback").await?;
    Ok(stranger.close().await?)
}

/// Somebody takes the last table of a unit first, and then its first one. The database breaks the circle at the service's
/// expense, since the stranger never looks for one.
pub(super) async fn deadlock(world: &World, lasts: Duration) -> Result<()> {
    let mut stranger = world.administrator().await?;
    run(&mut stranger, "set deadlock_timeout = '60s'").await?;
    run(&mut stranger, &format!("set lock_timeout = {}", LOCK_LIMIT.as_millis())).await?;
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        run(&mut stranger, "begin").await?;
        for (table, then) in [(TABLES[2], 5 * BEAT), (TABLES[0], Duration::ZERO)] {
            if run(&mut stranger, &format!("lock table {table} in exclusive mode")).await.is_err() {
                break;
            }
            sleep(then).await;
        }
        run(&mut stranger, "rollback").await?;
        sleep(5 * BEAT).await;
    }
    Ok(stranger.close().await?)
}

/// Others take what connections there are, and the service's own as they end.
pub(super) async fn full_pool(world: &World, lasts: Duration) -> Result<()> {
    let mut admin = world.administrator().await?;
    let guest =
        "do $$ begin create role guest login password 'guest'; exception when duplicate_object then null; end $$";
    run(&mut admin, guest).await?;
    let url = format!("postgres://guest:guest@127.0.0.1:{}/{ROLE}", world.postgres.port());
    let mut guests = Vec::new();
    let end = Instant::now() + lasts;
    run(&mut admin, &format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'"))
        .await?;
    while Instant::now() < end {
        while guests.len() < SESSIONS {
            match timeout(BEAT * 5, PgConnection::connect(&url)).await {
                Ok(Ok(guest)) => guests.push(guest),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        sleep(BEAT).await;
    }
    for guest in guests {
        guest.close_hard().await?;
    }
    Ok(admin.close().await?)
}

async fn run(connection: &mut PgConnection, statement: &str) -> Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))).await?;
    Ok(())
}
