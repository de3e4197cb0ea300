//! A disk that is full: the ledger is moved to a small one, which is filled (53100) and freed again.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::{Instant, sleep};

use super::world::World;

/// What the ledger may grow by until the disk is full.
const ROOM: i64 = 4 << 20;
/// SQLSTATE of a full disk.
const DISK_FULL: &str = "53100";
/// How long we wait for a lock that the service holds.
const LOCK_LIMIT: &str = "set lock_timeout = '20s'";

/// The disk is full for this long.
pub(super) async fn fill(world: &World, lasts: Duration) -> Result<()> {
    let mut admin = world.administrator().await?;
    admin.execute(LOCK_LIMIT).await?;
    let folder = world.scratch.path().join("small-disk");
    let size: i64 = sqlx::query_scalar("select pg_total_relation_size('charge')").fetch_one(&mut admin).await?;
    mount(&folder, size + ROOM, world.postgres.folder())?;
    let outcome = fill_mounted(&mut admin, &folder, lasts).await;
    let freed = free(&mut admin).await;
    outcome?;
    freed?;
    run(Command::new("umount").arg(&folder))?;
    Ok(admin.close().await?)
}

async fn fill_mounted(admin: &mut PgConnection, folder: &Path, lasts: Duration) -> Result<()> {
    let create = format!("create tablespace small location '{}'", folder.display());
    admin.execute(sqlx::raw_sql(AssertSqlSafe(create))).await?;
    admin.execute("alter table charge set tablespace small").await?;
    admin.execute("create table filler (words text) tablespace small").await?;
    let end = Instant::now() + lasts;
    // What a rolled back unit leaves free is taken as well.
    while Instant::now() < end {
        for rows in [5_000, 200, 1] {
            while grow(admin, rows).await? {}
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether there was room for so many rows.
async fn grow(admin: &mut PgConnection, rows: i32) -> Result<bool> {
    let rows =
        sqlx::query("insert into filler select repeat(md5(n::text), 20) from generate_series(1, $1) n").bind(rows);
    match rows.execute(admin).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == DISK_FULL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn free(admin: &mut PgConnection) -> Result<()> {
    for statement in [
        "drop table if exists filler",
        "alter table charge set tablespace pg_default",
        "drop tablespace if exists small",
    ] {
        admin.execute(statement).await.context(statement)?;
    }
    Ok(())
}

/// Mounts a disk in memory for the server's account.
fn mount(folder: &Path, bytes: i64, of_the_server: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(folder))?;
    let owner = fs::metadata(of_the_server)?;
    chown(folder, Some(owner.uid()), Some(owner.gid())).context("cannot give the small disk to the server")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
