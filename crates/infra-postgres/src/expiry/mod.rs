//! The end of claims, in two steps that lie a grace period apart: first the floor of a group moves above what is to go,
//! then it is removed, as whole partitions or row by row. Nothing above a floor is ever removed (D-9).
//!
//! Housekeeping calls [`advance_floor`] for its group and then one of [`drop_expired_partitions`] and
//! [`delete_expired_claims`], on the maintenance pool and on any number of nodes: one of them works, the others are
//! told so.

mod delete;
mod floor;
mod partitions;

pub use delete::{DeletedClaims, delete_expired_claims};
pub use floor::{FloorMove, advance_floor};
pub use partitions::{DroppedPartitions, Kept, KeptPartition, drop_expired_partitions};

use std::time::Duration;

use core_delivery::event::UnixMillis;
use core_delivery::ports::StoreError;
use sqlx::{Connection, PgConnection, PgPool};

use crate::errors::store_error;

/// How long claims are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How old a claim must be, both by its event's id and by the time it was stored.
    pub keep: Duration,
    /// How long a floor must have stood before anything below it is removed: longer than any statement and any unit
    /// may run. What read the floor before it moved is then over.
    pub grace: Duration,
}

impl Retention {
    /// With a grace period of an hour.
    pub fn of(keep: Duration) -> Self {
        Self { keep, grace: Duration::from_secs(3_600) }
    }

    /// What is older than this may go. Not before 1970, where no event is.
    fn cutoff(self, now: UnixMillis) -> UnixMillis {
        now.minus(self.keep).max(UnixMillis(0))
    }

    /// Within what the server's intervals hold.
    fn grace_millis(self) -> i64 {
        const THOUSAND_YEARS: i64 = 1_000 * 366 * 86_400_000;
        i64::try_from(self.grace.as_millis()).unwrap_or(THOUSAND_YEARS).min(THOUSAND_YEARS)
    }
}

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal<T> {
    /// It was this node's turn.
    Done(T),
    /// Another node is at it.
    HeldElsewhere,
}

/// The advisory lock of who removes claims: the ASCII codes of "expiring". Not the lock of those who make partitions,
/// which nobody may hold for as long as a removal takes.
const EXPIRY_LOCK: i64 = 0x6578_7069_7269_6e67;

/// A session outside of the pool, which is closed when it is dropped: neither its locks nor its settings can outlive
/// the work, whatever becomes of it. A statement may take its time here. A lock may be waited for as long as a unit
/// may be open, because nothing queues behind what is waited for here.
async fn session(pool: &PgPool) -> sqlx::Result<PgConnection> {
    let mut session = pool.acquire().await?.detach();
    // Nor are parallel workers taken from those who consume.
    let settings = "set statement_timeout = '15min'; set lock_timeout = '90s'; set max_parallel_workers_per_gather = 0";
    sqlx::raw_sql(settings).execute(&mut session).await?;
    Ok(session)
}

/// Rests after a piece of work for three times as long as it took, so that a removal takes a quarter of one session
/// at most, however much there is to remove.
async fn rest_after(work: Duration) {
    tokio::time::sleep(work * 3).await;
}

/// The turn to remove claims, or to keep others from it.
pub(crate) struct Turn {
    session: PgConnection,
}

impl Turn {
    /// `None` if somebody else has it.
    pub(crate) async fn take(pool: &PgPool) -> Result<Option<Self>, StoreError> {
        let taken = async {
            let mut session = session(pool).await?;
            let free: bool =
                sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(EXPIRY_LOCK).fetch_one(&mut session).await?;
            if !free {
                session.close().await?;
                return Ok(None);
            }
            Ok(Some(Self { session }))
        };
        taken.await.map_err(|error| store_error("take the turn to remove claims", error))
    }

    /// Unlocks before it closes, because the server notices the end of a session a moment later. The work is done, and
    /// what it did is known: a farewell that fails changes nothing about it.
    pub(crate) async fn end(mut self) {
        let unlock = sqlx::query("select pg_advisory_unlock($1)").bind(EXPIRY_LOCK);
        drop(unlock.execute(&mut self.session).await);
        drop(self.session.close().await);
    }
}
