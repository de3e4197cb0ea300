//! The whole configuration: one struct that is the command line, the environment and the documentation, and the
//! checks across its fields. It opens nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, anyhow};
use clap::{Args, ValueEnum};
use core_order::{BILLING_GROUP, Currency};
use serde_json::json;

use crate::cli::Failure;
use crate::retention::SHORTEST;

/// Every option, with its environment variable and default.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Kafka bootstrap servers, host:port, separated by commas.
    #[arg(long, env, global = true, value_name = "HOSTS", help_heading = "Kafka")]
    pub kafka_brokers: Option<String>,
    /// The topic of OrderConfirmed events.
    #[arg(long, env, global = true, default_value = "orders", value_name = "TOPIC", help_heading = "Kafka")]
    pub kafka_topic: String,
    /// The consumer group: claims are kept under its name, so a new name charges every order again.
    #[arg(long, env, global = true, default_value = BILLING_GROUP, value_name = "GROUP", help_heading = "Kafka")]
    pub kafka_group: String,
    /// Create missing retry and dead-letter topics.
    #[arg(long, env, global = true, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Kafka")]
    pub kafka_create_topics: bool,
    /// Check at start that the retry and dead-letter topics can hold the only copy of an event.
    ///
    /// Switch it off only for a broker that does not tell how its topics are configured, as the embedded one: nothing
    /// then notices a topic that loses copies, and none is created.
    #[arg(long, env, global = true, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Kafka")]
    pub kafka_check_topics: bool,
    /// More librdkafka properties, key=value, separated by commas, such as those of TLS and SASL. A part without `=` goes
    /// on with the value before it. Keys that carry a guarantee are refused.
    #[arg(long, env, global = true, value_name = "K=V,...", hide_env_values = true, value_delimiter = ',', value_parser = property, help_heading = "Kafka")]
    pub kafka_properties: Vec<PropertyPart>,
    /// How long the broker waits for a silent member before it gives its partitions away.
    #[arg(long, env, global = true, default_value = "15s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Kafka")]
    pub kafka_session_timeout: Duration,
    /// How often moved offsets are committed. A crash delivers again what was settled since.
    #[arg(long, env, global = true, default_value = "200ms", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Kafka")]
    pub kafka_commit_interval: Duration,
    /// How long running work may take to finish when partitions move or the service stops.
    #[arg(long, env, global = true, default_value = "10s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Kafka")]
    pub drain_limit: Duration,
    /// The delays of the retry tiers, separated by commas. After the last one an event is a dead letter.
    #[arg(long, env, global = true, default_value = "10s,1m,10m", value_name = "TIME,...", value_delimiter = ',', value_parser = humantime::parse_duration, help_heading = "Kafka")]
    pub retry_tiers: Vec<Duration>,

    /// PostgreSQL, as postgres://user:password@host:port/database.
    #[arg(long, env, global = true, value_name = "URL", hide_env_values = true, help_heading = "PostgreSQL")]
    pub database_url: Option<Secret>,
    /// A file that holds DATABASE_URL.
    #[arg(long, env, global = true, value_name = "PATH", conflicts_with = "database_url", help_heading = "PostgreSQL")]
    pub database_url_file: Option<PathBuf>,
    /// The same database, directly and as the tables' owner, for migrations and partitions. Default: DATABASE_URL.
    #[arg(long, env, global = true, value_name = "URL", hide_env_values = true, help_heading = "PostgreSQL")]
    pub database_maintenance_url: Option<Secret>,
    /// A file that holds DATABASE_MAINTENANCE_URL.
    #[arg(
        long,
        env,
        global = true,
        value_name = "PATH",
        conflicts_with = "database_maintenance_url",
        help_heading = "PostgreSQL"
    )]
    pub database_maintenance_url_file: Option<PathBuf>,
    /// Connections for units of work; one is used by each partition that is busy.
    #[arg(long, env, global = true, default_value_t = 16, value_name = "N", help_heading = "PostgreSQL")]
    pub database_connections: u32,
    /// Bring the schema up to date at start. Switch it off where a deployment step runs `migrate`.
    #[arg(long, env, global = true, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "PostgreSQL")]
    pub database_migrate: bool,

    /// How old claims are removed: whole partitions, or row by row for a role that may not change tables.
    #[arg(long, env, global = true, default_value = "partitions", value_name = "HOW", help_heading = "PostgreSQL")]
    pub claim_expiry: ClaimExpiry,
    /// How long claims are kept: a time of at least 7 days, or `auto`.
    ///
    /// `auto` is as long as the topics can bring an event back, at most 35 days. An event older than what is kept, and not
    /// in the ledger, is a dead letter.
    #[arg(long, env, global = true, default_value = "auto", value_name = "TIME", value_parser = claim_retention, help_heading = "PostgreSQL")]
    pub claim_retention: ClaimRetention,

    /// The payment provider's base URL; charges go to {base}/charges.
    #[arg(long, env, global = true, value_name = "URL", hide_env_values = true, help_heading = "Payment")]
    pub payment_url: Option<String>,
    /// The provider's API key.
    #[arg(long, env, global = true, value_name = "KEY", hide_env_values = true, help_heading = "Payment")]
    pub payment_api_key: Option<Secret>,
    /// A file that holds the provider's API key.
    #[arg(long, env, global = true, value_name = "PATH", conflicts_with = "payment_api_key", help_heading = "Payment")]
    pub payment_api_key_file: Option<PathBuf>,
    /// Whether the provider offers GET {base}/charges?idempotency_key=: it then settles what a call left in doubt.
    #[arg(long, env, global = true, default_value = "off", value_name = "SWITCH", help_heading = "Payment")]
    pub payment_lookup: PaymentLookup,
    /// What a 409 means once no earlier call of ours can be running and no look-up is offered.
    #[arg(long, env, global = true, default_value = "done", value_name = "MEANING", help_heading = "Payment")]
    pub payment_conflict: PaymentConflict,
    /// The longest wait for the provider's answer.
    #[arg(long, env, global = true, default_value = "10s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Payment")]
    pub payment_call_timeout: Duration,
    /// The longest wait for a connection to the provider.
    #[arg(long, env, global = true, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Payment")]
    pub payment_connect_timeout: Duration,
    /// How long the provider remembers an idempotency key. An older event is charged only if a look-up finds nothing.
    #[arg(long, env, global = true, default_value = "24h", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Payment")]
    pub payment_key_lifetime: Duration,
    /// The currency of events that name none. Kept in the database; a different value is refused later.
    #[arg(long, env, global = true, default_value = "EUR", value_name = "CODE", help_heading = "Payment")]
    pub currency: Currency,

    /// The most events in one transaction.
    #[arg(long, env, global = true, default_value_t = 2_000, value_name = "N", help_heading = "Limits")]
    pub batch_max: usize,
    /// The most calls to the provider in flight.
    #[arg(long, env, global = true, default_value_t = 256, value_name = "N", help_heading = "Limits")]
    pub calls_max: usize,
    /// How long the calls of a transaction may hold it; a call that takes longer is awaited beside the next ones.
    #[arg(long, env, global = true, default_value = "1s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub straggler_deadline: Duration,
    /// How far in the future an event's id may lie.
    #[arg(long, env, global = true, default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub clock_skew: Duration,

    /// Where /live, /ready and /metrics are served.
    #[arg(
        long,
        env,
        global = true,
        default_value = "127.0.0.1:8080",
        value_name = "ADDR",
        help_heading = "Operations"
    )]
    pub http_addr: SocketAddr,
    /// What is logged: a level, or directives as in `info,rdkafka=debug`.
    #[arg(
        long,
        env,
        global = true,
        default_value = "info,sqlx::postgres::notice=warn",
        value_name = "FILTER",
        help_heading = "Operations"
    )]
    pub log: String,
    /// How it is logged.
    #[arg(long, env, global = true, default_value = "text", value_name = "FORMAT", help_heading = "Operations")]
    pub log_format: LogFormat,
}

/// What a 409 of the provider means, once no earlier call of ours can be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PaymentConflict {
    /// The charge was made before.
    Done,
    /// Nothing is known: try again.
    Retry,
}

/// Whether the provider offers a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PaymentLookup {
    /// It does not, or it is not to be used.
    Off,
    /// It does.
    On,
}

/// How old claims are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClaimExpiry {
    /// By dropping the partitions of whole days.
    Partitions,
    /// Row by row.
    Delete,
}

/// How long claims are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRetention {
    /// As long as the topics can bring an event back.
    Auto,
    /// This long.
    For(Duration),
}

/// The format of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The configuration of the database alone, checked.
#[derive(Debug, Clone)]
pub struct Database {
    /// For units of work.
    pub url: Secret,
    /// For migrations and partitions.
    pub maintenance_url: Secret,
    /// The size of the pool of units.
    pub connections: u32,
    /// Whether to migrate at start.
    pub migrate: bool,
    /// The currency that the database is pinned to.
    pub currency: Currency,
}

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kafka bootstrap servers.
    pub brokers: String,
    /// The database.
    pub database: Database,
    /// The provider's base URL.
    pub payment_url: String,
    /// The provider's API key.
    pub payment_api_key: Option<Secret>,
    /// Everything that needs no more than its own check.
    pub config: Config,
}

impl Config {
    /// Whether neither brokers, nor a database, nor a provider are named: then all three are embedded. With one of them
    /// all are needed, so that no sample ever meets a real provider.
    pub fn names_nothing(&self) -> bool {
        let database = self.database_url.is_some() || self.database_url_file.is_some();
        !(self.kafka_brokers.is_some() || database || self.payment_url.is_some())
    }

    /// The properties for Kafka's client, each whole again.
    pub fn kafka_properties(&self) -> Vec<(String, String)> {
        let mut properties: Vec<(String, String)> = Vec::new();
        for part in &self.kafka_properties {
            match (part, properties.last_mut()) {
                (PropertyPart::Whole(key, value), _) => properties.push((key.clone(), value.clone())),
                (PropertyPart::Continued(more), Some((_, value))) => *value = format!("{value},{more}"),
                (PropertyPart::Continued(_), None) => {}
            }
        }
        properties
    }

    /// The values that suit the embedded run, for those options that were left at their default.
    pub fn with_embedded_defaults(self, is_default: impl Fn(&str) -> bool) -> Self {
        let tiers = [200, 1_000, 3_000].map(Duration::from_millis).to_vec();
        Self {
            retry_tiers: if is_default("retry_tiers") { tiers } else { self.retry_tiers },
            payment_lookup: if is_default("payment_lookup") { PaymentLookup::On } else { self.payment_lookup },
            // The screen belongs to the progress, and the faults that it speaks of are wanted.
            log: if is_default("log") { "error".to_owned() } else { self.log },
            ..self
        }
    }

    /// Checks everything that a run needs.
    pub fn checked(self) -> Result<Settings, Failure> {
        self.check().map_err(Failure::Configuration)
    }

    /// Checks what a command needs that only talks to the database.
    pub fn checked_database(&self) -> Result<Database, Failure> {
        let database = self.database().and_then(|database| database.ok_or_else(|| missing(&["DATABASE_URL"])));
        database.map_err(Failure::Configuration)
    }

    fn check(self) -> Result<Settings, Error> {
        let database = self.database()?;
        let names = ["KAFKA_BROKERS", "DATABASE_URL", "PAYMENT_URL"];
        let (brokers, payment_url) = (self.kafka_brokers.clone(), self.payment_url.clone());
        let (Some(brokers), Some(database), Some(payment_url)) = (&brokers, &database, &payment_url) else {
            let given = [brokers.is_some(), database.is_some(), payment_url.is_some()];
            let absent: Vec<&str> = names.into_iter().zip(given).filter(|(_, given)| !given).map(|(n, _)| n).collect();
            return Err(missing(&absent));
        };
        let payment_api_key = secret(&self.payment_api_key, self.payment_api_key_file.as_deref())?;
        self.check_limits()?;
        Ok(Settings {
            brokers: brokers.clone(),
            database: database.clone(),
            payment_url: payment_url.clone(),
            payment_api_key,
            config: self,
        })
    }

    fn database(&self) -> Result<Option<Database>, Error> {
        let Some(url) = secret(&self.database_url, self.database_url_file.as_deref())? else {
            return Ok(None);
        };
        if self.database_connections == 0 {
            return Err(anyhow!("DATABASE_CONNECTIONS is 0: at least one is needed"));
        }
        let maintenance_url = secret(&self.database_maintenance_url, self.database_maintenance_url_file.as_deref())?;
        Ok(Some(Database {
            maintenance_url: maintenance_url.unwrap_or_else(|| url.clone()),
            url,
            connections: self.database_connections,
            migrate: self.database_migrate,
            currency: self.currency,
        }))
    }

    /// What fits together and what does not.
    fn check_limits(&self) -> Result<(), Error> {
        if self.batch_max == 0 || self.calls_max == 0 {
            return Err(anyhow!("BATCH_MAX and CALLS_MAX must be at least 1"));
        }
        if let Some(PropertyPart::Continued(_)) = self.kafka_properties.first() {
            return Err(anyhow!("KAFKA_PROPERTIES does not begin with key=value"));
        }
        if self.payment_connect_timeout > self.payment_call_timeout {
            return Err(anyhow!(
                "PAYMENT_CONNECT_TIMEOUT ({:?}) is longer than PAYMENT_CALL_TIMEOUT ({:?}), which includes it",
                self.payment_connect_timeout,
                self.payment_call_timeout
            ));
        }
        let horizon: Duration = self.retry_tiers.iter().sum();
        if horizon + self.clock_skew + self.payment_call_timeout >= self.payment_key_lifetime {
            return Err(anyhow!(
                "the retry tiers take {horizon:?} in all, which with CLOCK_SKEW and PAYMENT_CALL_TIMEOUT reaches \
                 PAYMENT_KEY_LIFETIME ({:?}): the last try could meet a provider that has forgotten the key",
                self.payment_key_lifetime
            ));
        }
        if let Some(tier) = self.retry_tiers.iter().find(|tier| tier.is_zero()) {
            return Err(anyhow!("RETRY_TIERS holds {tier:?}: a tier without a delay would be a busy loop"));
        }
        Ok(())
    }
}

impl Settings {
    /// The options with their values, one a line; secrets show only whether they are set.
    pub fn to_text(&self) -> String {
        let values = self.values();
        let lines = values.as_object().into_iter().flatten();
        lines
            .map(|(name, value)| format!("{name}={}\n", value.as_str().map_or(value.to_string(), str::to_owned)))
            .collect()
    }

    /// The same as a JSON object.
    pub fn to_json(&self) -> String {
        format!("{:#}\n", self.values())
    }

    fn values(&self) -> serde_json::Value {
        let Settings { config, database, .. } = self;
        let time = |duration: Duration| humantime::format_duration(duration).to_string();
        json!({
            "KAFKA_BROKERS": self.brokers,
            "KAFKA_TOPIC": config.kafka_topic,
            "KAFKA_GROUP": config.kafka_group,
            "KAFKA_CREATE_TOPICS": config.kafka_create_topics,
            "KAFKA_CHECK_TOPICS": config.kafka_check_topics,
            "KAFKA_PROPERTIES": config.kafka_properties().iter().map(|(key, _)| format!("{key}=***")).collect::<Vec<_>>().join(","),
            "KAFKA_SESSION_TIMEOUT": time(config.kafka_session_timeout),
            "KAFKA_COMMIT_INTERVAL": time(config.kafka_commit_interval),
            "DRAIN_LIMIT": time(config.drain_limit),
            "RETRY_TIERS": config.retry_tiers.iter().map(|tier| time(*tier)).collect::<Vec<_>>().join(","),
            "DATABASE_URL": "***",
            "DATABASE_MAINTENANCE_URL": "***",
            "DATABASE_CONNECTIONS": database.connections,
            "DATABASE_MIGRATE": database.migrate,
            "CLAIM_EXPIRY": match config.claim_expiry { ClaimExpiry::Partitions => "partitions", ClaimExpiry::Delete => "delete" },
            "CLAIM_RETENTION": match config.claim_retention { ClaimRetention::Auto => "auto".to_owned(), ClaimRetention::For(keep) => time(keep) },
            "PAYMENT_URL": self.payment_url,
            "PAYMENT_API_KEY": if self.payment_api_key.is_some() { "***" } else { "" },
            "PAYMENT_LOOKUP": match config.payment_lookup { PaymentLookup::Off => "off", PaymentLookup::On => "on" },
            "PAYMENT_CONFLICT": match config.payment_conflict { PaymentConflict::Done => "done", PaymentConflict::Retry => "retry" },
            "PAYMENT_CALL_TIMEOUT": time(config.payment_call_timeout),
            "PAYMENT_CONNECT_TIMEOUT": time(config.payment_connect_timeout),
            "PAYMENT_KEY_LIFETIME": time(config.payment_key_lifetime),
            "CURRENCY": config.currency.as_str(),
            "BATCH_MAX": config.batch_max,
            "CALLS_MAX": config.calls_max,
            "STRAGGLER_DEADLINE": time(config.straggler_deadline),
            "CLOCK_SKEW": time(config.clock_skew),
            "HTTP_ADDR": config.http_addr.to_string(),
            "LOG": config.log,
            "LOG_FORMAT": match config.log_format { LogFormat::Text => "text", LogFormat::Json => "json" },
        })
    }
}

fn missing(names: &[&str]) -> Error {
    anyhow!(
        "not set: {}. A run needs KAFKA_BROKERS, DATABASE_URL and PAYMENT_URL (`app-billing sandbox-provider` serves \
         a provider to try with)",
        names.join(", ")
    )
}

fn secret(value: &Option<Secret>, file: Option<&Path>) -> Result<Option<Secret>, Error> {
    match (value, file) {
        (Some(value), _) => Ok(Some(value.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Some(Secret(text.trim_end_matches(['\r', '\n']).to_owned())))
        }
        (None, None) => Ok(None),
    }
}

fn claim_retention(text: &str) -> Result<ClaimRetention, String> {
    if text == "auto" {
        return Ok(ClaimRetention::Auto);
    }
    let keep = humantime::parse_duration(text).map_err(|error| format!("{error}; expected a time or `auto`"))?;
    if keep < SHORTEST {
        return Err(
            "claims are kept for at least 7 days: an event that comes back later would not be recognized".into()
        );
    }
    Ok(ClaimRetention::For(keep))
}

/// What stands between two commas of `KAFKA_PROPERTIES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyPart {
    /// `key=value`.
    Whole(String, String),
    /// The rest of a value that has a comma.
    Continued(String),
}

fn property(text: &str) -> Result<PropertyPart, String> {
    match text.split_once('=') {
        Some((key, _)) if key.trim().is_empty() => Err("a property has no key before its `=`".to_owned()),
        Some((key, value)) => Ok(PropertyPart::Whole(key.trim().to_owned(), value.to_owned())),
        None => Ok(PropertyPart::Continued(text.to_owned())),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
