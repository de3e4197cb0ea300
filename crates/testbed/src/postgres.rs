//! The sandbox's private PostgreSQL as the tests use it: larger, and with databases; how it runs is the sandbox's.

use std::{
    env,
    ops::{Deref, DerefMut},
};

use anyhow::{Context, Result};
use sandbox::postgres::Binaries;
pub use sandbox::postgres::PostgresOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Variable with the folder of the server's programs, for tests on another version than the newest that is installed.
const BINARIES_VARIABLE: &str = "TEST_PG_BIN";
/// What many tests at once need; a setting of the caller's wins.
const SETTINGS: &[(&str, &str)] = &[("max_connections", "300"), ("shared_buffers", "256MB"), ("max_wal_size", "4GB")];

/// A PostgreSQL server of our own on 127.0.0.1, with its data in a temporary folder. It ends with us, even at a
/// kill -9, and leaves nothing; dropping it blocks until it has ended.
#[derive(Debug)]
pub struct PrivatePostgres(sandbox::postgres::PrivatePostgres);

impl PrivatePostgres {
    /// Makes a new cluster and starts its server, whose programs are those of `TEST_PG_BIN`, else what is installed.
    ///
    /// # Errors
    /// When no server is installed (the error says what to install) or it does not get ready (with its log's tail).
    pub async fn start(mut options: PostgresOptions) -> Result<Self> {
        for (name, value) in SETTINGS {
            options.settings.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        if let Some(chosen) = env::var_os(BINARIES_VARIABLE) {
            options.binaries = Binaries::In(chosen.into());
        }
        Ok(Self(sandbox::postgres::PrivatePostgres::start(options, &|_| ()).await?))
    }

    /// A server of its own that follows this one asynchronously, with the same users and passwords.
    ///
    /// # Errors
    /// When the installation cannot make one (the error says what is missing), or it does not get ready.
    pub async fn standby(&self) -> Result<Self> {
        Ok(Self(self.0.standby().await?))
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Errors
    /// When it exists, or the server does not answer.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        let quoted = name.replace('"', "\"\"");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(format!("create database \"{quoted}\""))))
            .await
            .with_context(|| format!("cannot create the database {name}"))?;
        connection.close().await?;
        Ok(self.url(name))
    }
}

impl Deref for PrivatePostgres {
    type Target = sandbox::postgres::PrivatePostgres;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for PrivatePostgres {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
