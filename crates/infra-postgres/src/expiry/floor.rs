//! The floors of the groups: moved up here, read by the claim statement, obeyed by whatever removes claims. No claim is
//! removed here.

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::StoreError;
use sqlx::{Connection, PgConnection, PgPool};
use uuid::Uuid;

use super::{Retention, session};
use crate::clock;
use crate::errors::store_error;

/// What became of a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloorMove {
    /// It was moved up, and no id below it will be claimed any more.
    Moved {
        /// What it was before, if there was one.
        from: Option<EventId>,
        /// What it is now.
        to: EventId,
    },
    /// No claim above it is old enough to be removed.
    Unneeded,
    /// It was moved less than a grace period ago. If it moved on before that, it would never have stood for long enough
    /// to remove anything.
    Resting,
}

/// Moves the group's floor just above the newest claim that may be removed: one whose event was made, and which was
/// stored, longer ago than `retention.keep`. It never goes back.
///
/// It goes no further than that: a group of which nothing is old enough has no floor and may read a backlog of any age,
/// and one that stood still for weeks goes on with the events it has not seen.
///
/// `now` is the local clock; where the database's is behind it, the database's counts, because a floor that was moved
/// too far cannot be taken back.
pub async fn advance_floor(
    pool: &PgPool,
    group: &ConsumerGroup,
    retention: Retention,
    now: UnixMillis,
) -> Result<FloorMove, StoreError> {
    let moved = async {
        let mut session = session(pool).await?;
        let moved = advance(&mut session, group, retention, now).await?;
        session.close().await?;
        Ok(moved)
    };
    let moved = moved.await.map_err(|error| store_error(&format!("advance the floor of group {group}"), error))?;
    if let FloorMove::Moved { to, .. } = moved {
        tracing::info!(%group, floor = %to, "floor of the claims moved");
    }
    Ok(moved)
}

async fn advance(
    session: &mut PgConnection,
    group: &ConsumerGroup,
    retention: Retention,
    now: UnixMillis,
) -> sqlx::Result<FloorMove> {
    let now = now.min(clock::read(&mut *session).await?);
    let cutoff = retention.cutoff(now);
    let before: Option<(Uuid, bool)> = sqlx::query_as(
        "select floor, advanced_at > clock_timestamp() - $2 * interval '1 millisecond' from claim_floor \
         where consumer_group = $1",
    )
    .bind(group.as_str())
    .bind(retention.grace_millis())
    .fetch_optional(&mut *session)
    .await?;
    if let Some((_, true)) = before {
        return Ok(FloorMove::Resting);
    }
    let before = before.map(|(floor, _)| event_id(floor)).transpose()?;
    // Read from the newest on, so the first that is found is the answer, and mostly one of the first that are looked at.
    let newest: Option<Uuid> = sqlx::query_scalar(
        "select event_id from processed_event where consumer_group = $1 and event_id < $2 and event_id >= $3 \
         and processed_at < to_timestamp($4::bigint / 1000.0) order by event_id desc limit 1",
    )
    .bind(group.as_str())
    .bind(EventId::first_at(cutoff).as_uuid())
    .bind(before.map_or(Uuid::nil(), EventId::as_uuid))
    .bind(cutoff.0)
    .fetch_optional(&mut *session)
    .await?;
    let Some(newest) = newest else { return Ok(FloorMove::Unneeded) };
    let to = first_above(event_id(newest)?);
    let written = sqlx::query(
        "insert into claim_floor as stored (consumer_group, floor, advanced_at) values ($1, $2, clock_timestamp()) \
         on conflict (consumer_group) do update set previous = stored.floor, previous_at = stored.advanced_at, \
         floor = excluded.floor, advanced_at = excluded.advanced_at where stored.floor < excluded.floor \
         and stored.advanced_at <= excluded.advanced_at - $3 * interval '1 millisecond'",
    )
    .bind(group.as_str())
    .bind(to.as_uuid())
    .bind(retention.grace_millis())
    .execute(&mut *session)
    .await?;
    // Not written if another node did it in between.
    Ok(if written.rows_affected() == 1 { FloorMove::Moved { from: before, to } } else { FloorMove::Resting })
}

/// The smallest id of the next millisecond.
fn first_above(id: EventId) -> EventId {
    EventId::first_at(UnixMillis(id.made_at().0 + 1))
}

fn event_id(stored: Uuid) -> sqlx::Result<EventId> {
    EventId::try_from(stored).map_err(|invalid| sqlx::Error::Decode(format!("{stored} {invalid}").into()))
}

/// The floor of a group up to which its claims may be removed: the one that has stood for a grace period.
pub(super) struct StandingFloor {
    pub(super) group: String,
    pub(super) floor: Uuid,
}

/// Those of all groups that have one.
pub(super) async fn standing_floors(
    session: &mut PgConnection,
    retention: Retention,
) -> sqlx::Result<Vec<StandingFloor>> {
    let rows: Vec<(String, Option<Uuid>)> = sqlx::query_as(
        "select consumer_group, case when advanced_at <= clock_timestamp() - $1 * interval '1 millisecond' then floor \
         when previous_at <= clock_timestamp() - $1 * interval '1 millisecond' then previous end \
         from claim_floor order by consumer_group",
    )
    .bind(retention.grace_millis())
    .fetch_all(session)
    .await?;
    let standing = |(group, floor): (String, Option<Uuid>)| Some(StandingFloor { group, floor: floor? });
    Ok(rows.into_iter().filter_map(standing).collect())
}
