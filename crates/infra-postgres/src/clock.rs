//! The database's clock. No decision about it is made here.

use core_delivery::event::UnixMillis;
use core_delivery::ports::StoreError;
use sqlx::{PgExecutor, PgPool};

use crate::errors::store_error;

/// What time it is for the database: `processed_at`, the retention and the floors go by this clock. Compare it with the
/// local one before "too old" or "from the future" is said of any event.
pub async fn database_clock(pool: &PgPool) -> Result<UnixMillis, StoreError> {
    read(pool).await.map_err(|error| store_error("read the database's clock", error))
}

pub(crate) async fn read(executor: impl PgExecutor<'_>) -> sqlx::Result<UnixMillis> {
    let millis =
        sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000)::bigint").fetch_one(executor).await?;
    Ok(UnixMillis(millis))
}
