//! The charge ledger in the unit that holds the claim: the tables of this application, and nothing of delivery.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, Error, bail};
use async_trait::async_trait;
use core_delivery::claim::{Claim, ConsumerGroup, DedupKey};
use core_delivery::event::UnixMillis;
use core_delivery::ports::{LaneLog, LaneMark, MarkAnswer, Owner, PositionStep, StoredPosition};
use core_delivery::record::LaneId;
use core_order::{
    BillingTx, CompletedCharge, Currency, EventId, Reservation, ReservationAnswer, StoreError, UnitOfWork,
    UnitOfWorkFactory,
};
use infra_postgres::{MigrationError, PgStore, PgUnit, migrate, store_error, within};
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use uuid::Uuid;

/// The migrations of the ledger.
static BILLING: Migrator = sqlx::migrate!("../../migrations/billing");

/// Brings the ledger's tables to this version.
pub async fn migrate_ledger(pool: &PgPool) -> Result<(), MigrationError> {
    migrate(pool, &BILLING, "billing_migration").await
}

/// Keeps the currency of events that name none with the database, once and for all: reading the same event with
/// another one would send the provider another body under the same key.
pub async fn pin_currency(pool: &PgPool, currency: Currency) -> Result<(), Error> {
    const PIN: &str = "insert into billing_setting (name, value) values ('currency', $1) on conflict do nothing";
    sqlx::query(PIN).bind(currency.as_str()).execute(pool).await.context("cannot write the currency")?;
    let pinned: String = sqlx::query_scalar("select value from billing_setting where name = 'currency'")
        .fetch_one(pool)
        .await
        .context("cannot read the currency")?;
    if pinned != currency.as_str() {
        bail!("CURRENCY is {currency}, but this database was set up with {pinned}: set CURRENCY={pinned}");
    }
    Ok(())
}

/// How long a statement of the ledger may take, the server's own limit and the way there and back.
const STATEMENT_LIMIT: Duration = Duration::from_secs(35);

/// Opens units that carry the ledger.
pub struct BillingStore(pub PgStore);

/// A unit that carries the ledger.
pub struct BillingUnit(PgUnit);

#[async_trait]
impl UnitOfWorkFactory for BillingStore {
    type Unit = BillingUnit;

    async fn begin(&self) -> Result<BillingUnit, StoreError> {
        self.0.begin().await.map(BillingUnit)
    }

    async fn now(&self) -> Result<UnixMillis, StoreError> {
        self.0.now().await
    }

    async fn positions(&self, group: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        self.0.positions(group, lane).await
    }

    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        self.0.mark(lane).await
    }

    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError> {
        self.0.set_mark(lane, from, to).await
    }
}

#[async_trait]
impl UnitOfWork for BillingUnit {
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError> {
        self.0.claim(keys).await
    }

    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError> {
        self.0.release(keys).await
    }

    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError> {
        self.0.advance(step).await
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.0.commit().await
    }
}

/// The reservations go in by order id, so that two units that reserve the same orders wait for each other and
/// never in a circle.
const RESERVE: &str = "
    insert into charge (event_id, order_id, customer_id, amount_minor, currency)
    select * from unnest($1::uuid[], $2::text[], $3::text[], $4::int8[], $5::text[])
    on conflict do nothing
    returning event_id";

/// Who holds the orders, or the event ids, that could not be reserved.
const HOLDERS: &str = "
    select event_id, order_id, charged_at is not null from charge where order_id = any($1) or event_id = any($2)";

const CHARGED: &str = "select event_id from charge where event_id = any($1) and charged_at is not null";

const CANCEL: &str = "delete from charge where event_id = any($1) and charged_at is null";

const COMPLETE: &str = "
    update charge set provider_ref = done.provider_ref, charged_at = now()
    from unnest($1::uuid[], $2::text[]) as done (event_id, provider_ref)
    where charge.event_id = done.event_id and charge.charged_at is null";

#[async_trait]
impl BillingTx for BillingUnit {
    async fn charged(&mut self, events: &[EventId]) -> Result<Vec<bool>, StoreError> {
        let ids: Vec<Uuid> = events.iter().map(|event| event.as_uuid()).collect();
        let charged: Vec<Uuid> =
            within(STATEMENT_LIMIT, sqlx::query_scalar(CHARGED).bind(&ids).fetch_all(self.0.connection()))
                .await
                .map_err(|error| store_error("read which events have charged", error))?;
        let charged: HashSet<Uuid> = charged.into_iter().collect();
        Ok(ids.iter().map(|id| charged.contains(id)).collect())
    }

    async fn reserve(&mut self, reservations: &[Reservation<'_>]) -> Result<Vec<ReservationAnswer>, StoreError> {
        let mut by_order: Vec<&Reservation<'_>> = reservations.iter().collect();
        by_order.sort_unstable_by_key(|reservation| (reservation.order_id, reservation.event_id));
        let events: Vec<Uuid> = by_order.iter().map(|r| r.event_id.as_uuid()).collect();
        let orders: Vec<&str> = by_order.iter().map(|r| r.order_id.as_str()).collect();
        let customers: Vec<&str> = by_order.iter().map(|r| r.customer_id.as_str()).collect();
        let amounts: Vec<i64> = by_order.iter().map(|r| r.total.minor_units).collect();
        let currencies: Vec<&str> = by_order.iter().map(|r| r.total.currency.as_str()).collect();
        let reserved: Vec<Uuid> = within(
            STATEMENT_LIMIT,
            sqlx::query_scalar(RESERVE)
                .bind(&events)
                .bind(&orders)
                .bind(&customers)
                .bind(&amounts)
                .bind(&currencies)
                .fetch_all(self.0.connection()),
        )
        .await
        .map_err(|error| store_error("reserve the orders", error))?;
        if reserved.len() == reservations.len() {
            return Ok(vec![ReservationAnswer::Reserved; reservations.len()]);
        }
        let reserved: HashSet<Uuid> = reserved.into_iter().collect();
        let holders = self.holders(reservations.iter().filter(|r| !reserved.contains(&r.event_id.as_uuid()))).await?;
        reservations
            .iter()
            .map(|reservation| match reserved.contains(&reservation.event_id.as_uuid()) {
                true => Ok(ReservationAnswer::Reserved),
                false => holders.answer(reservation),
            })
            .collect()
    }

    async fn cancel(&mut self, events: &[EventId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = events.iter().map(|event| event.as_uuid()).collect();
        let cancelled = within(STATEMENT_LIMIT, sqlx::query(CANCEL).bind(&ids).execute(self.0.connection()))
            .await
            .map_err(|error| store_error("cancel reservations", error))?;
        all_affected("cancelled", cancelled.rows_affected(), events.len())
    }

    async fn complete(&mut self, charges: &[CompletedCharge<'_>]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = charges.iter().map(|charge| charge.event_id.as_uuid()).collect();
        let refs: Vec<Option<&str>> = charges.iter().map(|charge| charge.provider_ref).collect();
        let completed =
            within(STATEMENT_LIMIT, sqlx::query(COMPLETE).bind(&ids).bind(&refs).execute(self.0.connection()))
                .await
                .map_err(|error| store_error("complete the charges", error))?;
        all_affected("completed", completed.rows_affected(), charges.len())
    }
}

impl BillingUnit {
    async fn holders<'a>(&mut self, refused: impl Iterator<Item = &'a Reservation<'a>>) -> Result<Holders, StoreError> {
        let (orders, events): (Vec<&str>, Vec<Uuid>) =
            refused.map(|r| (r.order_id.as_str(), r.event_id.as_uuid())).unzip();
        let rows: Vec<(Uuid, String, bool)> =
            within(STATEMENT_LIMIT, sqlx::query_as(HOLDERS).bind(&orders).bind(&events).fetch_all(self.0.connection()))
                .await
                .map_err(|error| store_error("read who holds the orders", error))?;
        Ok(Holders {
            charged: rows.iter().map(|(event, _, charged)| (*event, *charged)).collect(),
            by_order: rows.into_iter().map(|(event, order, _)| (order, event)).collect(),
        })
    }
}

/// The ledger's rows that were in the way: whether each event's charge is complete, and who holds each order.
struct Holders {
    charged: HashMap<Uuid, bool>,
    by_order: HashMap<String, Uuid>,
}

impl Holders {
    fn answer(&self, reservation: &Reservation<'_>) -> Result<ReservationAnswer, StoreError> {
        match self.charged.get(&reservation.event_id.as_uuid()) {
            Some(true) => return Ok(ReservationAnswer::ChargedByThisEvent),
            Some(false) => return Ok(ReservationAnswer::ReservedBefore),
            None => {}
        }
        let holder = self.by_order.get(reservation.order_id.as_str());
        // The row can be gone again: its unit rolled back in between. Then the whole unit is run again.
        holder
            .and_then(|holder| EventId::try_from(*holder).ok())
            .map(ReservationAnswer::ChargedByAnotherEvent)
            .ok_or_else(|| StoreError::conflict("an order was reserved and let go at the same time"))
    }
}

/// A statement that met fewer rows than this unit has reserved shows a bug or a foreign hand: nothing is committed.
fn all_affected(what: &str, affected: u64, expected: usize) -> Result<(), StoreError> {
    if usize::try_from(affected) == Ok(expected) {
        return Ok(());
    }
    Err(StoreError::rejected(format!("{affected} of {expected} reservations were {what}")))
}
