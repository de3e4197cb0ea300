//! What the tests stand on: a database of their own, events, limits. No assertion about the product is made here.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use core_delivery::claim::{Claim, ConsumerGroup, DedupKey};
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::{StoreError, UnitOfWork, UnitOfWorkFactory};
use infra_postgres::{
    PartitionDay, PartitionPlan, PgSettings, PgStore, PgUnit, connect, ensure_partitions, migrate_delivery,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

pub(crate) const GROUP: &str = "billing-order-confirmed";

/// A database that exists for one test. It is left behind, for the server is thrown away with all of them: to drop
/// one costs a checkpoint, more than most of the tests.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) units: PgPool,
    pub(crate) maintenance: PgPool,
    pub(crate) store: PgStore,
    name: String,
}

impl World {
    /// With the schema of this build.
    pub(crate) async fn new() -> Self {
        Self::with(|settings| settings).await
    }

    /// With other settings of the units' pool.
    pub(crate) async fn with(change: impl FnOnce(PgSettings) -> PgSettings) -> Self {
        let world = Self::empty(change).await;
        migrate_delivery(&world.maintenance, PartitionPlan::default(), now()).await.expect("migrate");
        world
    }

    /// Without any schema.
    pub(crate) async fn empty(change: impl FnOnce(PgSettings) -> PgSettings) -> Self {
        let (url, name) = create_database().await;
        let units = connect(&change(settings(&url))).await.expect("connect");
        let maintenance = connect(&settings(&url)).await.expect("connect");
        let store = PgStore::new(units.clone(), maintenance.clone());
        Self { url, units, maintenance, store, name }
    }

    pub(crate) async fn begin(&self) -> PgUnit {
        self.store.begin().await.expect("begin")
    }

    /// Claims and commits, which must work.
    pub(crate) async fn claimed(&self, keys: &[DedupKey]) -> Vec<Claim> {
        let mut unit = self.begin().await;
        let answers = unit.claim(keys).await.expect("claim");
        unit.commit().await.expect("commit");
        answers
    }

    /// How many claims are stored.
    pub(crate) async fn stored(&self) -> i64 {
        sqlx::query_scalar("select count(*) from processed_event").fetch_one(&self.maintenance).await.expect("count")
    }

    /// Runs SQL that has no answer.
    pub(crate) async fn run(&self, sql: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&self.maintenance).await.expect("statement");
    }

    /// Runs `alter database … <sql>`: it holds for sessions that are opened from now on.
    pub(crate) async fn alter(&self, sql: &str) {
        let mut admin = PgConnection::connect(&admin_url()).await.expect("connect");
        let sql = format!("alter database {} {sql}", self.name);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.expect("alter database");
    }

    /// How many sessions of this database are in the state, not counting the one that asks.
    pub(crate) async fn sessions(&self, state: &str) -> i64 {
        sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and state like $1 \
             and pid <> pg_backend_pid()",
        )
        .bind(state)
        .fetch_one(&self.maintenance)
        .await
        .expect("sessions")
    }

    /// How many statements wait for a lock.
    pub(crate) async fn waiting(&self) -> i64 {
        sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_one(&self.maintenance)
        .await
        .expect("waiting")
    }
}

fn settings(url: &str) -> PgSettings {
    PgSettings { max_connections: 30, connect_timeout: Duration::from_secs(20), ..PgSettings::new(url) }
}

pub(crate) fn admin_url() -> String {
    std::env::var("TEST_DATABASE_URL").expect("TEST_DATABASE_URL is not set: run cargo xtask test-integration")
}

async fn create_database() -> (String, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let name = format!("store_{process}_{number}");
    let mut admin = PgConnection::connect(&admin_url()).await.expect("connect");
    sqlx::raw_sql(AssertSqlSafe(format!("drop database if exists {name} with (force)")))
        .execute(&mut admin)
        .await
        .expect("drop database");
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut admin).await.expect("create database");
    let url = admin_url();
    let (server, parameters) = url.split_once('?').map_or((url.as_str(), ""), |(server, rest)| (server, rest));
    let scheme = server.find("://").map_or(0, |at| at + 3);
    let host = server[scheme..].find('/').map_or(server, |slash| &server[..scheme + slash]);
    let question = if parameters.is_empty() { "" } else { "?" };
    (format!("{host}/{name}{question}{parameters}"), name)
}

pub(crate) fn now() -> UnixMillis {
    EventId::generate().made_at()
}

/// A new event's key in the usual group.
pub(crate) fn key() -> DedupKey {
    key_of(EventId::generate(), GROUP)
}

pub(crate) fn key_of(event: EventId, group: &str) -> DedupKey {
    DedupKey::new(event, ConsumerGroup::new(group))
}

/// New keys, sorted.
pub(crate) fn keys(count: usize) -> Vec<DedupKey> {
    let mut keys: Vec<_> = (0..count).map(|_| key()).collect();
    keys.sort();
    keys
}

/// An event that was made some days from now.
pub(crate) fn key_in_days(days: i64) -> DedupKey {
    let instant = UnixMillis(now().0 + days * 86_400_000);
    key_of(EventId::at(instant, *b"0123456789"), GROUP)
}

/// Claims of a group as they are some days after: made, stored and committed so long ago.
pub(crate) async fn aged(world: &World, group: &str, days: &[i64]) -> Vec<DedupKey> {
    let mut keys: Vec<_> = days.iter().map(|ago| key_of(key_in_days(-ago).event_id(), group)).collect();
    keys.sort();
    let made = keys.iter().map(|key| PartitionDay::of(key.event_id().made_at()));
    ensure_partitions(&world.maintenance, made).await.expect("partitions");
    assert_eq!(world.claimed(&keys).await, vec![Claim::Fresh; keys.len()]);
    for key in &keys {
        let id = key.event_id();
        world
            .run(format!(
                "update processed_event set processed_at = to_timestamp({} / 1000.0) \
                 where event_id = '{id}' and consumer_group = '{group}'",
                id.made_at().0
            ))
            .await;
    }
    keys
}

/// Gives a promise ten seconds.
pub(crate) async fn soon<T>(promise: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), promise).await.expect("not within ten seconds")
}

/// Asks again until it holds, for at most ten seconds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let asked = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asked).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[track_caller]
pub(crate) fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
}

#[track_caller]
pub(crate) fn assert_conflict<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Conflict { .. })), "{result:?}");
}

#[track_caller]
pub(crate) fn assert_rejected<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Rejected { .. })), "{result:?}");
}
