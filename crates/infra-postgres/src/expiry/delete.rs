//! Removal row by row: for a role that may not change tables, or for few claims. No partition goes away here.

use std::ops::ControlFlow;

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::UnixMillis;
use core_delivery::ports::StoreError;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use uuid::Uuid;

use super::floor::{StandingFloor, standing_floors};
use super::{Removal, Retention, Turn, rest_after};
use crate::clock;
use crate::errors::store_error;

/// What was deleted of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedClaims {
    /// The group.
    pub group: ConsumerGroup,
    /// How many claims.
    pub claims: u64,
}

/// Deletes the claims that were stored longer ago than `retention.keep` and whose id lies below their group's floor,
/// and says how many they were of each group that has a floor.
///
/// It goes up the ids in transactions of `batch` rows (10,000 is a good number) and rests after each for three times as
/// long as that one took, so it takes a quarter of one session at most. No claim ever waits for it: the claim statement inserts
/// nothing below the floor, and nothing else is deleted. `progress` hears of every batch and may end the run.
///
/// # Errors
///
/// What was deleted before an error stays deleted; the next run goes on.
pub async fn delete_expired_claims(
    pool: &PgPool,
    retention: Retention,
    batch: u32,
    mut progress: impl FnMut(&DeletedClaims) -> ControlFlow<()> + Send,
) -> Result<Removal<Vec<DeletedClaims>>, StoreError> {
    let Some(mut turn) = Turn::take(pool).await? else { return Ok(Removal::HeldElsewhere) };
    let deleted = delete(&mut turn.session, retention, batch.max(1), &mut progress).await;
    let deleted = deleted.map_err(|error| store_error("delete expired claims", error))?;
    turn.end().await;
    Ok(Removal::Done(deleted))
}

async fn delete(
    session: &mut PgConnection,
    retention: Retention,
    batch: u32,
    progress: &mut (impl FnMut(&DeletedClaims) -> ControlFlow<()> + Send),
) -> sqlx::Result<Vec<DeletedClaims>> {
    let cutoff = retention.cutoff(clock::read(&mut *session).await?);
    let mut all = Vec::new();
    for StandingFloor { group, floor } in standing_floors(session, retention).await? {
        let mut deleted = DeletedClaims { group: ConsumerGroup::new(group), claims: 0 };
        let mut after = Uuid::nil();
        let mut goes_on = ControlFlow::Continue(());
        while goes_on.is_continue() {
            let begun = Instant::now();
            let last = last_of_batch(session, &deleted.group, cutoff, after, floor, batch).await?;
            // The batch that is not full reaches up to the floor.
            let last_below = Uuid::from_u128(floor.as_u128().saturating_sub(1));
            let until = last.unwrap_or(last_below);
            deleted.claims += delete_range(session, &deleted.group, cutoff, after, until).await?;
            goes_on = progress(&deleted);
            if last.is_none() {
                break;
            }
            // The next one begins behind what is gone: the index still holds it, until a vacuum.
            after = until;
            rest_after(begun.elapsed()).await;
        }
        tracing::info!(group = %deleted.group, claims = deleted.claims, "expired claims deleted");
        all.push(deleted);
        if goes_on.is_break() {
            break;
        }
    }
    Ok(all)
}

/// The last id of the next batch; `None` if what is left does not fill one. Asked for first, and then given to the
/// delete as a value: knowing both ends of the range, the server always takes the index of the ids.
async fn last_of_batch(
    session: &mut PgConnection,
    group: &ConsumerGroup,
    cutoff: UnixMillis,
    after: Uuid,
    floor: Uuid,
    batch: u32,
) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar(
        "select event_id from processed_event where consumer_group = $1 and event_id > $2 and event_id < $3 \
         and processed_at < to_timestamp($4::bigint / 1000.0) order by event_id offset $5 limit 1",
    )
    .bind(group.as_str())
    .bind(after)
    .bind(floor)
    .bind(cutoff.0)
    .bind(i64::from(batch) - 1)
    .fetch_optional(session)
    .await
}

async fn delete_range(
    session: &mut PgConnection,
    group: &ConsumerGroup,
    cutoff: UnixMillis,
    after: Uuid,
    until: Uuid,
) -> sqlx::Result<u64> {
    let done = sqlx::query(
        "delete from processed_event where consumer_group = $1 and event_id > $2 and event_id <= $3 \
         and processed_at < to_timestamp($4::bigint / 1000.0)",
    )
    .bind(group.as_str())
    .bind(after)
    .bind(until)
    .bind(cutoff.0)
    .execute(session)
    .await?;
    Ok(done.rows_affected())
}
