//! What the service has written into its database, read past the service; nothing is ever written here.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::{FromRow, PgPool, postgres::PgPoolOptions};
use uuid::Uuid;

/// How long a connection may take to open.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The tables of charges and of claims.
#[derive(Debug, Clone)]
pub struct Ledger {
    pool: PgPool,
}

/// A row of the ledger, of which only committed ones can be seen.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ChargeRow {
    /// The event that charged the order.
    pub event_id: Uuid,
    /// The order.
    pub order_id: String,
    /// How much, in minor units.
    pub amount_minor: i64,
    /// The currency.
    pub currency: String,
    /// The provider's name of the charge, if it gave one.
    pub provider_ref: Option<String>,
    /// Whether the charge was completed; a row that is not must never be seen.
    pub charged: bool,
}

/// How far a partition of the source is done, as the database holds it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Position {
    /// The topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The next offset to be read.
    pub next_offset: i64,
}

impl Ledger {
    /// Connects to the service's database. Its tables may come later.
    ///
    /// # Errors
    /// When the server does not answer within 10 s.
    pub async fn connect(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(CONNECT_LIMIT).connect(url).await;
        Ok(Self { pool: pool.context("cannot read the ledger")? })
    }

    /// All charges.
    ///
    /// # Errors
    /// When the table does not exist yet, or the server does not answer.
    pub async fn charges(&self) -> Result<Vec<ChargeRow>> {
        let rows = sqlx::query_as(
            "select event_id, order_id, amount_minor, currency, provider_ref, charged_at is not null as charged \
             from charge order by event_id",
        );
        rows.fetch_all(&self.pool).await.context("cannot read the charges")
    }

    /// How many charges there are.
    ///
    /// # Errors
    /// When the table does not exist yet, or the server does not answer.
    pub async fn charge_count(&self) -> Result<usize> {
        let count: i64 = sqlx::query_scalar("select count(*) from charge where charged_at is not null")
            .fetch_one(&self.pool)
            .await
            .context("cannot count the charges")?;
        Ok(usize::try_from(count)?)
    }

    /// The events that the group has claimed.
    ///
    /// # Errors
    /// When the table does not exist yet, or the server does not answer.
    pub async fn claims(&self, group: &str) -> Result<Vec<Uuid>> {
        sqlx::query_scalar("select event_id from processed_event where consumer_group = $1 order by event_id")
            .bind(group)
            .fetch_all(&self.pool)
            .await
            .context("cannot read the claims")
    }

    /// How many events the group has claimed.
    ///
    /// # Errors
    /// When the table does not exist yet, or the server does not answer.
    pub async fn claim_count(&self, group: &str) -> Result<usize> {
        let count: i64 = sqlx::query_scalar("select count(*) from processed_event where consumer_group = $1")
            .bind(group)
            .fetch_one(&self.pool)
            .await
            .context("cannot count the claims")?;
        Ok(usize::try_from(count)?)
    }

    /// The positions of the group.
    ///
    /// # Errors
    /// When the table does not exist yet, or the server does not answer.
    pub async fn positions(&self, group: &str) -> Result<Vec<Position>> {
        sqlx::query_as("select topic, partition, next_offset from consumer_position where consumer_group = $1")
            .bind(group)
            .fetch_all(&self.pool)
            .await
            .context("cannot read the positions")
    }
}
