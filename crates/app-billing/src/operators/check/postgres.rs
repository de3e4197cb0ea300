//! The check of the database: sessions, durability, schema, partitions, clock, currency. It reads only.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use core_delivery::event::UnixMillis;
use core_delivery::ports::error_chain;
use infra_postgres::{ConnectError, PartitionDay, PgSettings, check_durability, connect, database_clock};
use sqlx::PgPool;
use sqlx::migrate::Migrator;

use super::Item;
use crate::config::Database;

/// The schema that this build wants.
static DELIVERY: Migrator = sqlx::migrate!("../../migrations/delivery");
static BILLING: Migrator = sqlx::migrate!("../../migrations/billing");

/// How far the local clock and the database's may be apart.
const CLOCK_LIMIT: Duration = Duration::from_secs(60);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks both URLs, and the database behind them.
pub async fn check(database: &Database) -> Vec<Item> {
    let mut items = Vec::new();
    let urls = [("DATABASE_URL", &database.url), ("DATABASE_MAINTENANCE_URL", &database.maintenance_url)];
    let mut pools = Vec::new();
    for (name, url) in urls {
        let settings = PgSettings {
            max_connections: 1,
            application_name: "app-billing check".to_owned(),
            ..PgSettings::new(url.reveal())
        };
        match connect(&settings).await {
            Ok(pool) => {
                items.push(Item::fine(name, "connected"));
                pools.push(pool);
            }
            Err(error) => items.push(refused(name, &error)),
        }
    }
    if let [units, maintenance] = pools.as_slice() {
        items.push(match check_durability(units).await {
            Ok(()) => Item::fine("durability", "the server keeps what it confirms"),
            Err(error) => refused("durability", &error),
        });
        items.push(schema(maintenance, "schema of delivery", "delivery_migration", &DELIVERY).await);
        items.push(schema(maintenance, "schema of billing", "billing_migration", &BILLING).await);
        items.push(partitions(maintenance).await);
        items.push(clock(maintenance).await);
        items.push(currency(maintenance, database).await);
    }
    items
}

fn refused(name: &str, error: &ConnectError) -> Item {
    let what = error_chain(error);
    match error {
        ConnectError::Url { .. } => {
            Item::finding(name, what, "write it as postgres://user:password@host:port/database")
        }
        ConnectError::Unfit(_) => Item::finding(name, what, "change the server's setting, or use another server"),
        ConnectError::Unreachable { .. } => {
            Item::unreachable(name, what, "start the server, or correct host, user, password and pg_hba.conf")
        }
    }
}

fn failed(name: &str, error: &sqlx::Error) -> Item {
    match error {
        sqlx::Error::Database(error) if matches!(error.code().as_deref(), Some("42P01" | "42703")) => {
            Item::finding(name, format!("the database is not set up: {error}"), MIGRATE)
        }
        error => Item::unreachable(name, error_chain(error), "the database answered before: check again"),
    }
}

const MIGRATE: &str = "run `app-billing migrate` with the owner's role in DATABASE_MAINTENANCE_URL";

async fn schema(pool: &PgPool, name: &str, history: &str, wanted: &Migrator) -> Item {
    let newest = wanted.iter().map(|migration| migration.version).max().unwrap_or(0);
    let sql = format!("select version, success from {history} order by version");
    let rows = sqlx::query_as::<_, (i64, bool)>(sqlx::AssertSqlSafe(sql)).fetch_all(pool).await;
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return failed(name, &error),
    };
    if let Some((version, _)) = rows.iter().find(|(_, success)| !success) {
        return Item::finding(name, format!("migration {version} was begun and did not succeed"), MIGRATE);
    }
    match rows.last().map_or(0, |(version, _)| *version) {
        found if found < newest => Item::finding(name, format!("version {found}, this build wants {newest}"), MIGRATE),
        found => Item::fine(name, format!("version {found}")),
    }
}

async fn partitions(pool: &PgPool) -> Item {
    let name = "partitions of claims";
    let attached = "
        select exists (select from pg_inherits
                       where inhrelid = to_regclass($1) and inhparent = to_regclass('processed_event'))";
    let now = now();
    let mut missing = Vec::new();
    for day in [now, now.plus(DAY)].map(PartitionDay::of) {
        match sqlx::query_scalar::<_, bool>(attached).bind(day.name()).fetch_one(pool).await {
            Ok(true) => {}
            Ok(false) => missing.push(day.name()),
            Err(error) => return failed(name, &error),
        }
    }
    if missing.is_empty() {
        return Item::fine(name, "today's and tomorrow's are there");
    }
    let fix = format!("{MIGRATE}; a running service makes them every hour, so see why it did not");
    Item::finding(name, format!("missing: {}", missing.join(", ")), fix)
}

async fn clock(pool: &PgPool) -> Item {
    let name = "clock";
    let before = now();
    let theirs = match database_clock(pool).await {
        Ok(theirs) => theirs,
        Err(error) => return Item::unreachable(name, error_chain(&error), "the database answered before: check again"),
    };
    // The answer was made somewhere between: what cannot be a difference of clocks does not count.
    let apart = theirs.since(now()).max(before.since(theirs));
    let seconds = apart.as_secs();
    if apart > CLOCK_LIMIT {
        let fix = "synchronise both machines with NTP: an event from the future is a dead letter";
        return Item::finding(name, format!("{seconds} s between here and the database"), fix);
    }
    Item::fine(name, format!("{seconds} s between here and the database"))
}

async fn currency(pool: &PgPool, database: &Database) -> Item {
    let name = "currency";
    let pinned: sqlx::Result<Option<String>> =
        sqlx::query_scalar("select value from billing_setting where name = 'currency'").fetch_optional(pool).await;
    match pinned {
        Ok(Some(pinned)) if pinned != database.currency.as_str() => {
            let what = format!("CURRENCY is {}, and this database was set up with {pinned}", database.currency);
            Item::finding(name, what, format!("set CURRENCY={pinned}"))
        }
        Ok(Some(pinned)) => Item::fine(name, pinned),
        Ok(None) => Item::fine(name, format!("{}, kept at the first start", database.currency)),
        Err(error) => failed(name, &error),
    }
}

fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
