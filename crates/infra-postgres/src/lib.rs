//! PostgreSQL for the delivery kernel: claims, positions, units of work, partitions, migrations. Nothing here may know a
//! business table or the broker; an application brings its own statements to [`PgUnit::connection`].
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use core_delivery::event::UnixMillis;
//! # use infra_postgres::{PgSettings, PgStore, PartitionPlan};
//! # async fn compose(url: &str, now: UnixMillis) -> Result<PgStore, Box<dyn std::error::Error>> {
//! let units = infra_postgres::connect(&PgSettings::new(url)).await?;
//! let maintenance = infra_postgres::connect(&PgSettings { max_connections: 2, ..PgSettings::new(url) }).await?;
//! infra_postgres::check_durability(&units).await?;
//! infra_postgres::migrate_delivery(&maintenance, PartitionPlan::default(), now).await?;
//! Ok(PgStore::new(units, maintenance))
//! # }
//! ```
//!
//! Read in this order: [`connect`](connect()) (what a session is held to), `errors` (what an error means), `unit`
//! `claims` and [`positions`] (the transaction and its statements), `marks`, `partitions`, `migrate`,
//! `expiry` (how claims end), `import` (how they came).

mod connect;
mod durability;
mod errors;
mod unit;

mod claims;
mod marks;
mod migrate;
mod partitions;
pub mod positions;

mod clock;
mod expiry;
mod import;

pub use clock::database_clock;
pub use connect::{ConnectError, PgSettings, connect, within};
pub use durability::check_durability;
pub use errors::{StoreErrorClass, class_of, classify, classify_commit, store_error};
pub use expiry::{
    DeletedClaims, DroppedPartitions, FloorMove, Kept, KeptPartition, Removal, Retention, advance_floor,
    delete_expired_claims, drop_expired_partitions,
};
pub use import::{ImportedClaims, RefusedId, import_claims};
pub use migrate::{MigrationError, migrate, migrate_delivery};
pub use partitions::{MAINTENANCE_LOCK, Partition, PartitionDay, PartitionPlan, ensure_partitions};
pub use unit::{PgStore, PgUnit, UnitLimits};
