//! The table of the measurements that charge nobody: one row an event, written beside its claim. The same statement
//! in each, so that they can be compared.

use anyhow::Result;
use core_order::{Event, OrderConfirmed, StoreError};
use infra_postgres::{PartitionPlan, PgSettings, PgStore, PgUnit, connect, migrate_delivery, store_error};
use sqlx::{Executor, PgPool};
use uuid::Uuid;

use crate::world::LANES;

const CREATE: &str = "create table bench_ledger (event_id uuid primary key, order_id text not null, \
                      customer_id text not null, amount bigint not null, charged_at timestamptz not null default now())";

const INSERT: &str = "insert into bench_ledger (event_id, order_id, customer_id, amount) \
                      select * from unnest($1::uuid[], $2::text[], $3::text[], $4::int8[])";

/// A database with the claims and the table, empty.
pub(crate) struct Database {
    pub(crate) store: PgStore,
    /// For maintenance: apart from the connections of the units.
    pub(crate) pool: PgPool,
}

impl Database {
    pub(crate) async fn prepare(url: &str) -> Result<Self> {
        let settings = |max_connections| PgSettings { max_connections, ..PgSettings::new(url) };
        let units = connect(&settings(u32::try_from(LANES)? + 2)).await?;
        let maintenance = connect(&settings(2)).await?;
        let now = core_order::EventId::generate().made_at();
        migrate_delivery(&maintenance, PartitionPlan::default(), now).await?;
        maintenance.execute(CREATE).await?;
        Ok(Self { store: PgStore::new(units, maintenance.clone()), pool: maintenance })
    }

    /// Claims and rows.
    pub(crate) async fn counts(&self) -> Result<(i64, i64)> {
        let counts = "select (select count(*) from processed_event), (select count(*) from bench_ledger)";
        Ok(sqlx::query_as(counts).fetch_one(&self.pool).await?)
    }
}

/// Writes one row an event, in the unit that holds the claims.
pub(crate) async fn insert(unit: &mut PgUnit, events: &[&OrderConfirmed]) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id().as_uuid()).collect();
    let orders: Vec<&str> = events.iter().map(|event| event.order_id().as_str()).collect();
    let customers: Vec<&str> = events.iter().map(|event| event.customer_id().as_str()).collect();
    let amounts: Vec<i64> = events.iter().map(|event| event.total().minor_units).collect();
    let statement = sqlx::query(INSERT).bind(ids).bind(orders).bind(customers).bind(amounts);
    let inserted = statement.execute(unit.connection()).await;
    inserted.map(drop).map_err(|error| store_error("insert into bench_ledger", error))
}
