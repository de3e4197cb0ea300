//! A copy of the database takes over that lacks the last commits, while everything runs: what a failover to an
//! asynchronous replica does. It is the database from then on.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, Executor, PgConnection};
use testbed::PrivatePostgres;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::world::{ROLE, STEPS_DATABASE, Stop, World};

/// How long the copy may take to follow, and to be cut off.
const LIMIT: Duration = Duration::from_secs(30);
const FOLLOWS: &str = "select count(*) from pg_stat_wal_receiver where status = 'streaming'";
const CLAIMS: &str = "select count(*) from processed_event";
/// Every row of both journals.
const EFFECTS: &str =
    "select 'recorded' || place, key from journal union all select 'performed' || place, key from performed";

/// What was lost with databases.
#[derive(Debug, Default)]
pub(super) struct LostTails {
    pub(super) times: usize,
    /// Confirmed claims.
    pub(super) claims: usize,
    /// Keys of numbered events of which effects were lost. When they are made again later ones may stand already.
    pub(super) keys: HashSet<String>,
}

/// Copies the running database, cuts the copy off, lets the original go on for this long, crashes it, and has the copy take
/// its place. What was confirmed in between is lost, unless nothing was written.
///
/// The copy has to be cut off from the log itself: a replay that is only paused or delayed is made up for before a server
/// takes over.
pub(super) async fn lose_tail(world: &mut World, lasts: Duration) -> Result<()> {
    let copy = world.postgres.standby().await?;
    let mut session = PgConnection::connect(&copy.url(ROLE)).await?;
    until(&mut session, 1).await.context("the copy does not follow")?;
    session.execute("alter system set primary_conninfo = ''").await?;
    session.execute("select pg_reload_conf()").await?;
    until(&mut session, 0).await.context("the copy is not cut off")?;
    sleep(lasts).await;
    world.stop_postgres(Stop::AtOnce).await?;
    session.execute("select pg_promote(true, 60)").await?;
    let kept_claims: i64 = sqlx::query_scalar(CLAIMS).fetch_one(&mut session).await?;
    let kept_effects: HashSet<_> = effects(&copy).await?.into_iter().map(|(row, _)| row).collect();
    session.close().await?;
    let mut original = world.replace_postgres(copy)?;
    // What it had confirmed is read when nobody else reaches it any more.
    original.restart().await?;
    let mut session = PgConnection::connect(&original.url(ROLE)).await?;
    let confirmed: i64 = sqlx::query_scalar(CLAIMS).fetch_one(&mut session).await?;
    session.close().await?;
    let lost = effects(&original).await?.into_iter().filter(|(row, _)| !kept_effects.contains(row));
    world.lost_tails.keys.extend(lost.map(|(_, key)| key));
    world.lost_tails.claims += usize::try_from(confirmed - kept_claims)?;
    world.lost_tails.times += 1;
    println!("              of {confirmed} confirmed claims the copy that took over has {kept_claims}");
    // It blocks until the folder is gone.
    Ok(spawn_blocking(move || drop(original)).await?)
}

async fn effects(server: &PrivatePostgres) -> Result<Vec<(String, String)>> {
    let mut session = PgConnection::connect(&server.url(STEPS_DATABASE)).await?;
    let rows = sqlx::query_as(EFFECTS).fetch_all(&mut session).await?;
    session.close().await?;
    Ok(rows)
}

/// Waits until so many receivers stream.
async fn until(session: &mut PgConnection, wanted: i64) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now: i64 = sqlx::query_scalar(FOLLOWS).fetch_one(&mut *session).await?;
        if now == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not within {LIMIT:?}");
        sleep(Duration::from_millis(50)).await;
    }
}
