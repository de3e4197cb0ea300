//! How a session is opened, what it is held to, and when a pooled one is thrown away. No statement of the
//! product's work may be here.

use std::future::Future;
use std::str::FromStr;
use std::time::Duration;

use core_delivery::ports::BoxError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};
use tokio::time::timeout;

use crate::errors;

/// How to reach the server, and the limits that hold for every session.
#[derive(Clone)]
pub struct PgSettings {
    /// `postgres://user:password@host:port/database`, with sqlx's parameters (`sslmode`, `sslrootcert`, …).
    ///
    /// Through PgBouncer in transaction mode: `statement-cache-capacity=0`, and the limits below must be set on the
    /// role instead, because the bouncer does not pass them on. Migrations need a direct connection.
    pub url: String,
    /// At least as many as units are open at once: a unit holds one connection from begin to commit.
    pub max_connections: u32,
    /// Limit of the first connection, at start. Later ones have `acquire_timeout`.
    pub connect_timeout: Duration,
    /// How long a statement may wait for a lock: a claim that another open unit holds, above all.
    pub lock_timeout: Duration,
    /// How long a statement may run.
    pub statement_timeout: Duration,
    /// After this the server ends a session whose open transaction does nothing. A unit idles while its events'
    /// calls are in flight, so it must be longer than those.
    pub idle_in_transaction_timeout: Duration,
    /// How long a caller may wait for a connection of the pool, opening one included.
    pub acquire_timeout: Duration,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
}

impl PgSettings {
    /// The defaults, for this server.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_connections: 16,
            connect_timeout: Duration::from_secs(2),
            lock_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(60),
            acquire_timeout: Duration::from_secs(5),
            application_name: "delivery".to_owned(),
        }
    }

    /// The limits travel in the start-up packet. So they are there before the first statement, cost no round trip,
    /// and `RESET ALL` returns to them, which a `SET` after connecting would not survive.
    fn connect_options(&self) -> Result<PgConnectOptions, ConnectError> {
        let options =
            PgConnectOptions::from_str(&self.url).map_err(|error| ConnectError::Url { source: error.into() })?;
        let limits = [
            ("lock_timeout", self.lock_timeout),
            ("statement_timeout", self.statement_timeout),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_timeout),
        ];
        Ok(options
            .application_name(&self.application_name)
            .options(limits.map(|(name, limit)| (name, limit.as_millis()))))
    }
}

/// The URL holds a password.
impl std::fmt::Debug for PgSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgSettings")
            .field("max_connections", &self.max_connections)
            .field("application_name", &self.application_name)
            .finish_non_exhaustive()
    }
}

/// Why the service cannot start on this server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The setting cannot be read. Retrying changes nothing.
    #[error("the database URL is not valid")]
    Url {
        /// The driver's reason.
        #[source]
        source: BoxError,
    },
    /// No session within the limit, or it was refused. The server may come up yet.
    #[error("no session with the database: {context}")]
    Unreachable {
        /// What was tried.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// The server could lose what it has confirmed, or cannot take it at all. Retrying changes nothing.
    #[error("the database cannot keep the guarantees: {0}")]
    Unfit(String),
}

impl ConnectError {
    pub(crate) fn unreachable(context: &str, error: sqlx::Error) -> Self {
        Self::Unreachable { context: context.to_owned(), source: Some(errors::source(error)) }
    }
}

/// Opens a pool, after one connection has proved within `connect_timeout` that the server takes us.
pub async fn connect(settings: &PgSettings) -> Result<PgPool, ConnectError> {
    let options = settings.connect_options()?;
    match timeout(settings.connect_timeout, options.connect()).await {
        Ok(Ok(probe)) => drop(probe.close().await),
        Ok(Err(error)) => return Err(ConnectError::unreachable("connect", error)),
        Err(_) => {
            let context = format!("connect: no answer within {:?}", settings.connect_timeout);
            return Err(ConnectError::Unreachable { context, source: None });
        }
    }
    let pool = PgPoolOptions::new()
        .max_connections(settings.max_connections)
        .acquire_timeout(settings.acquire_timeout)
        // Replaced by the two hooks below, which see more than the ping and cost less. sqlx alone pays two round
        // trips a unit, a ping at release and a ping at acquire. Here the check comes with the release, where no
        // caller waits for it, and an acquire pays it only for a connection that has lain idle.
        .test_before_acquire(false)
        .before_acquire(|connection, idle| {
            Box::pin(async move { if idle.idle_for > TRUSTED_IDLE { is_usable(connection).await } else { Ok(true) } })
        })
        .after_release(|connection, _| Box::pin(is_usable(connection)))
        .connect_lazy_with(options);
    Ok(pool)
}

/// A connection that was checked at its release this short a time ago is taken as it is. If the server went away
/// in between, one unit finds out at its begin, where nothing has happened yet.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// How long the check may take. Without a limit a connection whose peer fell silent would keep its place in the
/// pool until TCP gives up, a quarter of an hour later.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// Whether the session is outside any transaction and may write; what it finds open it rolls back.
///
/// A `begin` that was cancelled leaves a session in a transaction that sqlx 0.9 knows nothing of (sqlx#4385): the
/// next borrower would write into it, see its statements succeed, and nothing would be stored. A blind ROLLBACK on
/// every release would do, but the server logs a warning for each one that finds no transaction. `begin_with` is
/// exact and silent: after its statement, here a plain select, sqlx reads from the protocol's own status whether
/// the session is in a transaction, and says `BeginFailed` if it is not, which is the good case. In an aborted
/// transaction the select fails, and the connection is closed.
///
/// The select divides by zero on a session that is read-only, as those of a demoted primary are: a ping passes
/// there, and every unit would fail with 25006 for as long as the connection lives. It is one round trip for both.
async fn is_usable(connection: &mut PgConnection) -> sqlx::Result<bool> {
    const PROBE: &str = "select 1 / (current_setting('transaction_read_only') = 'off')::int";
    within(CHECK_LIMIT, async {
        match connection.begin_with(PROBE).await {
            Err(sqlx::Error::BeginFailed) => Ok(true),
            Ok(left_open) => left_open.rollback().await.map(|()| true),
            Err(sqlx::Error::Database(error)) => {
                tracing::info!(error = %error, "database session is read-only or aborted and is closed");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    })
    .await
}

/// Bounds the wait for an answer. The server's own limits say nothing when the network swallows the answer, and
/// sqlx waits for it without an end. What was cut off leaves the connection unusable: it must go back to the pool,
/// whose check then closes it, and never to another statement.
pub async fn within<T>(limit: Duration, answer: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    match timeout(limit, answer).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!("no answer within {limit:?}");
            Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_in_the_start_up_packet() {
        let settings = PgSettings::new("postgres://someone:secret@localhost/orders?options=-c%20work_mem%3D8MB");
        let options = settings.connect_options().expect("a valid URL");
        assert_eq!(
            options.get_options(),
            Some(
                "-c work_mem=8MB -c lock_timeout=5000 -c statement_timeout=30000 \
                 -c idle_in_transaction_session_timeout=60000"
            )
        );
        assert_eq!(options.get_application_name(), Some("delivery"));
    }

    #[test]
    fn a_password_is_never_printed() {
        let settings = PgSettings::new("postgres://someone:secret@localhost/orders");
        assert!(!format!("{settings:?}").contains("secret"));
        let error = PgSettings::new("postgres://someone:secret@:nonsense").connect_options().expect_err("not valid");
        assert!(!core_delivery::ports::error_chain(&error).contains("secret"), "{error:?}");
    }
}
