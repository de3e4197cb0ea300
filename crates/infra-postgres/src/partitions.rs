//! The partitions of the claims table: the one function that makes them. Which ones, and of which bounds, are the rules
//! of the modules below; none is dropped here.

mod day;
mod span;

pub use day::{PartitionDay, PartitionPlan};
pub use span::Partition;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use core_delivery::ports::StoreError;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::clock;
use crate::connect::within;
use crate::errors::{is_overlapping_partition, store_error};
use crate::unit::UnitLimits;
use span::{Grain, State, Table, missing};

/// The advisory lock of everyone who changes the partitions of the claims table: the ASCII codes of "delivery".
pub const MAINTENANCE_LOCK: i64 = 0x6465_6c69_7665_7279;

/// The comment on a table that is detached in order to be dropped.
pub(crate) const EXPIRING: &str = "delivery: detached to be dropped";

/// How many partitions one transaction makes: each takes a handful of entries in the server's lock table, which
/// holds 64 a connection.
const MADE_AT_ONCE: usize = 32;

/// Makes the partitions of these days where they are missing, and says how many it made.
///
/// A day of the last 60, or one to come, gets a partition of its own. An older one shares one with all days of its year
/// that have none.
///
/// Any number of processes may do it at once: they take turns by [`MAINTENANCE_LOCK`], and who comes later finds
/// the work done. Usually nothing is missing, and one look says so. Cancel safe: each transaction is whole or not
/// there.
///
/// # Errors
///
/// [`StoreError::Conflict`] if a lock was not granted in time; otherwise [`StoreError::Unavailable`].
pub async fn ensure_partitions(
    pool: &PgPool,
    days: impl IntoIterator<Item = PartitionDay>,
) -> Result<usize, StoreError> {
    ensure_within(UnitLimits::default().statement, pool, days.into_iter().collect()).await
}

/// The same with a limit for the look and for each transaction: the server's own limits say nothing when the network
/// swallows the answer.
pub(crate) async fn ensure_within(
    limit: Duration,
    pool: &PgPool,
    asked: BTreeSet<PartitionDay>,
) -> Result<usize, StoreError> {
    let look = async {
        let mut connection = pool.acquire().await?;
        look(&mut connection, &asked, Grain::Shared).await
    };
    let missing = within(limit, look).await.map_err(|error| store_error("read the partitions", error))?;
    let mut left = missing.len();
    let mut made = 0;
    while left > 0 {
        let now_made = match within(limit, make(pool, &asked, Grain::Shared)).await {
            // Somebody else's partition, of a name that says nothing, lies among the days that would be shared.
            Err(error) if is_overlapping_partition(&error) => within(limit, make(pool, &asked, Grain::Days)).await,
            result => result,
        };
        let now_made = now_made.map_err(|error| {
            let (first, last) = (missing[0].name(), missing[missing.len() - 1].name());
            store_error(&format!("make the partitions {first} to {last}"), error)
        })?;
        made += now_made.made;
        left = now_made.left;
    }
    Ok(made)
}

/// What a transaction did.
struct Made {
    made: usize,
    left: usize,
}

async fn make(pool: &PgPool, asked: &BTreeSet<PartitionDay>, grain: Grain) -> sqlx::Result<Made> {
    let mut transaction = pool.begin().await?;
    // Whatever the pool's sessions are held to: neither the turn nor the table may be waited for without an end.
    let limits = "set local lock_timeout = '5s'; set local statement_timeout = '30s'";
    sqlx::raw_sql(limits).execute(&mut *transaction).await?;
    sqlx::query("select pg_advisory_xact_lock($1)").bind(MAINTENANCE_LOCK).execute(&mut *transaction).await?;
    // Somebody else may have made them while this one waited for its turn.
    let tables = tables(&mut transaction).await?;
    let today = PartitionDay::of(clock::read(&mut *transaction).await?);
    let mut missing = missing(asked, &tables, today, grain);
    let left = missing.len().saturating_sub(MADE_AT_ONCE);
    missing.truncate(MADE_AT_ONCE);
    if missing.is_empty() {
        transaction.rollback().await?;
        return Ok(Made { made: 0, left });
    }
    let mut sql = String::new();
    for partition in &missing {
        let state = tables.iter().find(|table| table.partition == *partition).map(|table| table.state);
        // Who began to detach it was cut off, for nobody else holds the lock.
        if state == Some(State::HalfDetached) {
            writeln!(sql, "alter table processed_event detach partition {} finalize;", partition.name())
                .expect("a String takes every write");
        }
        sql.push_str(&partition.definition());
    }
    // The text is made of a constant, digits and ids of our own.
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    for partition in &missing {
        tracing::info!(partition = partition.name(), "partition made");
    }
    Ok(Made { made: missing.len(), left })
}

async fn look(
    connection: &mut PgConnection,
    asked: &BTreeSet<PartitionDay>,
    grain: Grain,
) -> sqlx::Result<Vec<Partition>> {
    let tables = tables(connection).await?;
    let today = PartitionDay::of(clock::read(connection).await?);
    Ok(missing(asked, &tables, today, grain))
}

/// All tables that are named like a partition. One whose detaching was begun and not finished takes no rows any more.
async fn tables(connection: &mut PgConnection) -> sqlx::Result<Vec<Table>> {
    let rows: Vec<(String, Option<bool>)> = sqlx::query_as(
        "select c.relname::text, i.inhdetachpending from pg_class c \
         left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = to_regclass('processed_event') \
         where c.relkind = 'r' and c.relname like 'processed\\_event\\_p%' \
         and c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('processed_event'))",
    )
    .fetch_all(connection)
    .await?;
    let table = |(name, half_detached): (String, Option<bool>)| {
        let state = match half_detached {
            Some(false) => State::Attached,
            Some(true) => State::HalfDetached,
            None => State::Detached,
        };
        Some(Table { partition: Partition::named(&name)?, state })
    };
    Ok(rows.into_iter().filter_map(table).collect())
}
