//! The facts that the database tells: claims, floor and ledger, of one instant. It reads, and judges nothing.

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::EventId;
use futures::TryStreamExt;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::super::table::Progress;
use super::{Audit, Charge};

/// An instant of the database's clock, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant(i64);

/// What time it is for the database.
pub async fn now(pool: &PgPool) -> sqlx::Result<Instant> {
    let micros = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    sqlx::query_scalar(micros).fetch_one(pool).await.map(Instant)
}

/// Below which event ids the group's claims may be gone.
pub async fn floor(pool: &PgPool, group: &ConsumerGroup) -> sqlx::Result<Option<EventId>> {
    let floor: Option<Uuid> = sqlx::query_scalar("select floor from claim_floor where consumer_group = $1")
        .bind(group.as_str())
        .fetch_optional(pool)
        .await?;
    Ok(floor.and_then(|floor| EventId::try_from(floor).ok()))
}

/// A claim that is older than the first migration of the ledger was made by another consumer and imported.
const CLAIMS: &str = "
    select event_id, processed_at < (select min(installed_on) from billing_migration)
    from processed_event
    where consumer_group = $1 and processed_at <= to_timestamp($2::float8 / 1000000)";

/// A reservation that was completed after the instant was unfinished at it.
const CHARGES: &str = "
    select event_id, order_id, amount_minor = 0, coalesce(charged_at <= to_timestamp($1::float8 / 1000000), false)
    from charge
    where reserved_at <= to_timestamp($1::float8 / 1000000)";

/// Reads the claims of the group and the charges into the audit: those whose transaction began at the instant or
/// before, all from one snapshot.
pub async fn read(pool: &PgPool, group: &ConsumerGroup, until: Instant, audit: &mut Audit) -> sqlx::Result<()> {
    let mut snapshot = pool.begin_with("begin isolation level repeatable read read only").await?;
    // Millions of rows take longer than a statement of a unit may.
    sqlx::query("set local statement_timeout = 0").execute(&mut *snapshot).await?;
    claims(&mut snapshot, group, until, audit).await?;
    charges(&mut snapshot, until, audit).await?;
    snapshot.rollback().await
}

async fn claims(
    connection: &mut PgConnection,
    group: &ConsumerGroup,
    until: Instant,
    audit: &mut Audit,
) -> sqlx::Result<()> {
    let mut progress = Progress::of("claims read");
    let query = sqlx::query_as::<_, (Uuid, Option<bool>)>(CLAIMS).bind(group.as_str()).bind(until.0);
    let mut rows = query.fetch(connection);
    while let Some((event, taken_over)) = rows.try_next().await? {
        progress.step();
        // Nothing else gets into the table by us, and no event has another id.
        if let Ok(event) = EventId::try_from(event) {
            audit.claim(event, taken_over.unwrap_or(false));
        }
    }
    Ok(())
}

async fn charges(connection: &mut PgConnection, until: Instant, audit: &mut Audit) -> sqlx::Result<()> {
    let mut progress = Progress::of("charges read");
    let mut rows = sqlx::query_as::<_, (Uuid, String, bool, bool)>(CHARGES).bind(until.0).fetch(connection);
    while let Some((event, order, is_free, is_complete)) = rows.try_next().await? {
        progress.step();
        if let Ok(event) = EventId::try_from(event) {
            audit.charge(Charge { event, order: &order, is_free, is_complete });
        }
    }
    Ok(())
}
