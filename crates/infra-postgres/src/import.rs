//! Claims of an earlier, plain table, brought over into the partitioned one. The source is only read.

use std::ops::ControlFlow;

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::{EventId, InvalidEventId};
use core_delivery::ports::StoreError;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use crate::errors::store_error;
use crate::expiry::Turn;
use crate::partitions::{PartitionDay, ensure_partitions};

/// What an import did, so far or in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportedClaims {
    /// Rows of the group that were read.
    pub read: u64,
    /// Claims that are new in the partitioned table.
    pub imported: u64,
    /// Claims that were there already.
    pub present: u64,
    /// Rows whose id is no event id, and which were left out.
    pub refused: u64,
    /// The first of those, [`NAMED`](Self::NAMED) at most.
    pub named: Vec<RefusedId>,
}

impl ImportedClaims {
    /// How many refused ids are named.
    pub const NAMED: usize = 100;

    fn refuse(&mut self, id: Uuid, reason: InvalidEventId) {
        self.refused += 1;
        if self.named.len() < Self::NAMED {
            self.named.push(RefusedId { id, reason });
        }
    }
}

/// An id that was left out: no event can carry it, so its claim says nothing (R-KFK-IDEM-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedId {
    /// The id.
    pub id: Uuid,
    /// Why.
    pub reason: InvalidEventId,
}

/// Copies the group's claims from `source`, a table of the same database with the columns `event_id uuid`,
/// `consumer_group` and `processed_at`, into the partitioned table, and makes the partitions they need.
///
/// It goes up the ids in transactions of `batch` rows (10,000 is a good number), so `source` should have an index that
/// begins with `event_id`. What is there already is left as it is: an import that was cut off is run again, and so is
/// one beside a consumer that still writes to `source`, once more when that has stopped. `progress` hears of every
/// batch and may end the run. No claim is removed by age meanwhile: a removal knows new claims by the time they were
/// stored, and these bring an older one with them.
///
/// # Errors
///
/// [`StoreError::Rejected`] if there is no such table, [`StoreError::Conflict`] if claims are being removed right now:
/// try again later. What was copied before an error stays.
pub async fn import_claims(
    pool: &PgPool,
    source: &str,
    group: &ConsumerGroup,
    batch: u32,
    mut progress: impl FnMut(&ImportedClaims) -> ControlFlow<()> + Send,
) -> Result<ImportedClaims, StoreError> {
    let failed = |error| store_error(&format!("import claims from {source}"), error);
    // A name of the server's own making, quoted and with its schema where it needs them, is safe in a statement.
    let table: Option<String> =
        sqlx::query_scalar("select to_regclass($1)::text").bind(source).fetch_one(pool).await.map_err(failed)?;
    let table = table.ok_or_else(|| StoreError::rejected(format!("import claims: there is no table {source}")))?;
    let Some(turn) = Turn::take(pool).await? else {
        return Err(StoreError::conflict("import claims: old claims are being removed; try again when that has ended"));
    };
    let mut done = ImportedClaims::default();
    let mut from = Some(Uuid::nil());
    while let Some(first) = from {
        let ids = read(pool, &table, group, first, batch.max(1)).await.map_err(failed)?;
        let Some(last) = ids.last() else { break };
        from = last.as_u128().checked_add(1).map(Uuid::from_u128);
        done.read += ids.len() as u64;
        let mut events = Vec::with_capacity(ids.len());
        for id in ids {
            match EventId::try_from(id) {
                Ok(event) => events.push(event),
                Err(reason) => done.refuse(id, reason),
            }
        }
        ensure_partitions(pool, events.iter().map(|event| PartitionDay::of(event.made_at()))).await?;
        let mut connection = pool.acquire().await.map_err(failed)?;
        let imported = copy(&mut connection, &table, group, &events).await.map_err(failed)?;
        done.imported += imported;
        done.present += events.len() as u64 - imported;
        if progress(&done).is_break() {
            break;
        }
    }
    turn.end().await;
    tracing::info!(source, %group, read = done.read, imported = done.imported, refused = done.refused, "claims imported");
    Ok(done)
}

async fn read(pool: &PgPool, table: &str, group: &ConsumerGroup, from: Uuid, batch: u32) -> sqlx::Result<Vec<Uuid>> {
    // Distinct, for a source without a unique key.
    let sql = format!(
        "select distinct event_id from {table} where consumer_group = $1 and event_id >= $2 order by event_id limit $3"
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).bind(group.as_str()).bind(from).bind(i64::from(batch)).fetch_all(pool).await
}

/// In the order of the ids, as units claim them. The time stays in the server, which knows its type; the earliest
/// counts if there are several, and a claim without one was stored now.
async fn copy(
    connection: &mut PgConnection,
    table: &str,
    group: &ConsumerGroup,
    events: &[EventId],
) -> sqlx::Result<u64> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.as_uuid()).collect();
    let sql = format!(
        "insert into processed_event (event_id, consumer_group, processed_at) \
         select event_id, $2, coalesce(min(processed_at), now()) from {table} \
         where consumer_group = $2 and event_id = any($1::uuid[]) group by event_id order by event_id \
         on conflict (event_id, consumer_group) do nothing"
    );
    let done = sqlx::query(AssertSqlSafe(sql)).bind(ids).bind(group.as_str()).execute(connection).await?;
    Ok(done.rows_affected())
}
