//! Bringing a database to the schema of this build. Each set of migrations keeps its own history; no table of an
//! application is named here.

use core_delivery::event::UnixMillis;
use core_delivery::ports::{BoxError, StoreError};
use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgPoolOptions;

use crate::StoreErrorClass;
use crate::errors::{class_of, store_error};
use crate::partitions::{PartitionPlan, ensure_partitions};

/// The migrations of the kernel's own tables.
static DELIVERY: Migrator = sqlx::migrate!("../../migrations/delivery");

/// How often another instance's migrations are waited for, each time for the session's `lock_timeout`.
const TURNS: u32 = 12;

/// Why a database was not brought to the schema of this build.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The store failed; running it again goes on where it stopped.
    #[error("the migration was not run")]
    Store(#[source] StoreError),
    /// The database's history and this build do not fit: a migration was changed after it had been applied.
    #[error("the migrations of {history} do not fit this build")]
    History {
        /// The table of the history.
        history: &'static str,
        /// The driver's reason.
        #[source]
        source: BoxError,
    },
}

/// Runs the kernel's migrations and makes the partitions around `now`.
pub async fn migrate_delivery(pool: &PgPool, plan: PartitionPlan, now: UnixMillis) -> Result<(), MigrationError> {
    migrate(pool, &DELIVERY, "delivery_migration").await?;
    ensure_partitions(pool, plan.days(now)).await.map_err(MigrationError::Store)?;
    Ok(())
}

/// Runs an application's migrations (`sqlx::migrate!`), which keep their history in the given table.
///
/// Any number of instances may do it at once: they take turns by an advisory lock. A newer version than this
/// build knows is left alone, so that a release can be rolled back; a changed one is refused. Needs a direct
/// connection: behind a pooler that shares sessions the lock would be worth nothing.
pub async fn migrate(pool: &PgPool, migrations: &Migrator, history: &'static str) -> Result<(), MigrationError> {
    let mut own = Migrator::with_migrations(migrations.iter().cloned().collect());
    own.set_ignore_missing(true).dangerous_set_table_name(history);
    let mut turn = 1;
    loop {
        match run(pool, &own).await {
            Err(MigrateError::Execute(error)) if turn < TURNS && class_of(&error) == StoreErrorClass::Conflict => {
                tracing::info!(history, turn, "waiting for another instance's migrations");
                turn += 1;
            }
            result => return result.map_err(|error| classified(history, error)),
        }
    }
}

async fn run(pool: &PgPool, migrations: &Migrator) -> Result<(), MigrateError> {
    // A migration may take as long as it needs, though it must not wait for a table's lock for long: everything
    // else would queue behind it.
    let options = pool.connect_options().as_ref().clone().options([("statement_timeout", 0)]);
    // A session of its own, closed afterwards: sqlx keeps its advisory lock when a migration fails, and a pooled
    // session would keep it for as long as it lives. (A pool of one, because `Migrator::run` on a connection makes
    // a future of which the compiler cannot tell that it may be sent.)
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(pool.options().get_acquire_timeout())
        .connect_lazy_with(options);
    let result = migrations.run(&own).await;
    own.close().await;
    result
}

fn classified(history: &'static str, error: MigrateError) -> MigrationError {
    match error {
        MigrateError::Execute(error) => MigrationError::Store(store_error("run the migrations", error)),
        MigrateError::ExecuteMigration(error, version) => {
            MigrationError::Store(store_error(&format!("run migration {version} of {history}"), error))
        }
        other => MigrationError::History { history, source: other.into() },
    }
}
