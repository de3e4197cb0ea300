//! Where the components of this test run are; it starts none and knows no client library.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};

/// Variable with the brokers of the run, `host:port[,host:port]`.
pub(crate) const BROKERS_VARIABLE: &str = "TEST_KAFKA_BROKERS";
/// Variable with the administrator's URL of the run's PostgreSQL.
pub(crate) const DATABASE_VARIABLE: &str = "TEST_DATABASE_URL";

/// The components that a test run shares. A test takes a topic, group and database (or schema) of its own in them.
#[derive(Debug, Clone)]
pub struct Backend {
    /// Bootstrap servers, `host:port[,host:port]`.
    pub kafka_brokers: String,
    /// URL of a database whose user may create other databases.
    pub database_url: String,
}

impl Backend {
    /// Reads `TEST_KAFKA_BROKERS` and `TEST_DATABASE_URL`, which `cargo xtask test-integration` sets.
    ///
    /// # Errors
    /// When one of them is missing; the error names the command that sets it.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let required = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .with_context(|| format!("{name} is not set: run cargo xtask test-integration"))
        };
        Ok(Self { kafka_brokers: required(BROKERS_VARIABLE)?, database_url: required(DATABASE_VARIABLE)? })
    }
}

/// A name that no other test of this machine has, valid for a topic, a group, a database and a schema:
/// `prefix_<nanoseconds>_<process>_<counter>`, at most 63 bytes for a prefix of up to 24.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_nanos();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    format!("{prefix}_{since_epoch:x}_{process:x}_{count:x}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_variable_names_the_command_that_sets_it() {
        let error = Backend::from_variables(|name| (name == BROKERS_VARIABLE).then(|| "127.0.0.1:9092".to_owned()))
            .unwrap_err();
        assert_eq!(error.to_string(), "TEST_DATABASE_URL is not set: run cargo xtask test-integration");
    }

    #[test]
    fn two_names_differ_and_fit_a_database() {
        let (one, other) = (unique_name("Orders"), unique_name("Orders"));
        assert_ne!(one, other);
        assert!(one.starts_with("orders_") && one.len() < 64, "{one}");
    }
}
