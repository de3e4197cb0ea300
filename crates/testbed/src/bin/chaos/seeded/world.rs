//! The components of a seeded run: a broker, a durable database behind a proxy, a provider in a process of its own. What
//! is done to them is not known here.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, PgConnection};
use testbed::{
    KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres, Proxy,
    clients::{KafkaClient, Ledger, ProviderOptions, ProviderProcess, run_to_end},
};

pub(super) const TOPIC: &str = "orders";
pub(super) const GROUP: &str = "billing-order-confirmed";
/// At the beginning.
pub(super) const PARTITIONS: i32 = 6;
/// The retry tiers. More, and longer in all, than the faults of the provider and a stop of half a minute can use up, so
/// that no event may end in one.
pub(super) const TIERS: [&str; 6] = ["1s", "3s", "10s", "20s", "30s", "40s"];
/// The service's role in the database.
pub(super) const ROLE: &str = "billing";
/// How many sessions the database has for everybody.
pub(super) const SESSIONS: usize = 64;
/// How long the schema may take.
const MIGRATE_LIMIT: Duration = Duration::from_secs(60);

/// Everything that outlives the processes of the service. It ends with us.
pub(super) struct World {
    pub(super) kafka: KafkaClient,
    pub(super) ledger: Ledger,
    pub(super) provider: Arc<ProviderProcess>,
    pub(super) proxy: Proxy,
    pub(super) logs: PathBuf,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) broker: LocalKafka,
    pub(super) postgres: PrivatePostgres,
}

impl World {
    pub(super) async fn start(logs: &Path, provider: &ProviderOptions, batch_max: u32) -> Result<Self> {
        if logs.exists() {
            fs::remove_dir_all(logs).with_context(|| format!("cannot empty {}", logs.display()))?;
        }
        fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let settings = BTreeMap::from([("max_connections".to_owned(), SESSIONS.to_string())]);
        let (broker, postgres, provider) = tokio::try_join!(
            LocalKafka::start(KafkaOptions::default()),
            PrivatePostgres::start(PostgresOptions { settings, ..PostgresOptions::default() }),
            ProviderProcess::start(provider),
        )?;
        let kafka = KafkaClient::new(broker.brokers())?;
        kafka.create_topic(TOPIC, PARTITIONS, &[]).await?;
        // A role that is no superuser: connections are kept free for those.
        let password = format!("{:032x}", rand::random::<u128>());
        let mut admin = PgConnection::connect(&postgres.url("postgres")).await?;
        for statement in
            [format!("create role {ROLE} login password '{password}'"), format!("create database {ROLE} owner {ROLE}")]
        {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut admin).await?;
        }
        admin.close().await?;
        let proxy = Proxy::start(([127, 0, 0, 1], postgres.port()).into()).await?;
        let database = format!("postgres://{ROLE}:{password}@{}/{ROLE}", proxy.addr());
        let migrated = run_to_end(&["migrate"], &[("DATABASE_URL", &database)], MIGRATE_LIMIT).await?;
        ensure!(migrated.status.success(), "no schema: {}", String::from_utf8_lossy(&migrated.stderr));
        let variables = vec![
            ("KAFKA_BROKERS", broker.brokers()),
            ("KAFKA_TOPIC", TOPIC.to_owned()),
            ("KAFKA_GROUP", GROUP.to_owned()),
            // A killed member is noticed after its session only.
            ("KAFKA_SESSION_TIMEOUT", "4s".to_owned()),
            // New partitions are found soon; librdkafka would take five minutes.
            ("KAFKA_PROPERTIES", "topic.metadata.refresh.interval.ms=2000".to_owned()),
            ("DRAIN_LIMIT", "3s".to_owned()),
            ("RETRY_TIERS", TIERS.join(",")),
            ("BATCH_MAX", batch_max.to_string()),
            ("DATABASE_URL", database),
            ("DATABASE_CONNECTIONS", "10".to_owned()),
            ("PAYMENT_URL", provider.url().to_owned()),
            ("PAYMENT_LOOKUP", "on".to_owned()),
            // For the timelines of events.
            ("LOG", "info,core_delivery=debug,sqlx::postgres::notice=warn".to_owned()),
        ];
        let ledger = Ledger::connect(&postgres.url(ROLE)).await?;
        let provider = Arc::new(provider);
        Ok(Self { kafka, ledger, provider, proxy, logs: logs.to_owned(), variables, broker, postgres })
    }

    /// A session of the superuser, past the proxy.
    pub(super) async fn administrator(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.postgres.url(ROLE)).await.context("the database does not let us in")
    }

    /// What the group has still before it. The source first and the tiers in their order, as events move.
    pub(super) async fn lag(&self) -> Result<i64> {
        let mut lag = self.kafka.lag(GROUP, TOPIC).await?;
        for topic in retry_topics() {
            lag += self.kafka.lag(GROUP, &topic).await?;
        }
        Ok(lag)
    }

    /// How often the group was balanced anew, as the broker tells.
    pub(super) fn rebalances(&self) -> Result<usize> {
        let log = self.broker.folder().join("log");
        let log = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        Ok(String::from_utf8_lossy(&log).matches(&format!("Stabilized group {GROUP} ")).count())
    }

    /// What the database complained of, and how often: the faults that reached it.
    pub(super) fn complaints(&self) -> Result<BTreeMap<&'static str, usize>> {
        let log = self.postgres.folder().join("log");
        let log = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let log = String::from_utf8_lossy(&log);
        let counted = COMPLAINTS.iter().map(|complaint| (*complaint, log.matches(complaint).count()));
        Ok(counted.filter(|(_, times)| *times > 0).collect())
    }
}

/// Words of the database's log.
const COMPLAINTS: [&str; 8] = [
    "deadlock detected",
    "canceling statement due to lock timeout",
    "canceling statement due to statement timeout",
    "canceling statement due to user request",
    "terminating connection due to administrator command",
    "remaining connection slots are reserved",
    "too many clients already",
    "in a read-only transaction",
];

pub(super) fn retry_topics() -> impl Iterator<Item = String> {
    TIERS.iter().map(|tier| format!("{TOPIC}.{GROUP}.retry.{tier}"))
}

pub(super) fn dead_letter_topic() -> String {
    format!("{TOPIC}.{GROUP}.dlq")
}

/// Where everything is, to look into it or to meddle with it.
impl Display for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.variables.iter().try_for_each(|(name, value)| writeln!(formatter, "    {name}={value}"))?;
        writeln!(formatter, "    the database past its proxy: {}", self.postgres.url(ROLE))?;
        write!(formatter, "    logs: {}", self.logs.display())
    }
}
