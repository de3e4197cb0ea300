//! The components of a seeded run: a broker, a durable database behind a proxy, a provider in a process of its own. Why
//! something is done to them is not known here.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use core_order::EventId;
use infra_postgres::{PartitionPlan, PgSettings, migrate_delivery};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tempfile::TempDir;
use testbed::{
    KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres, Proxy,
    clients::{KafkaClient, Ledger, ProviderOptions, ProviderProcess, run_to_end},
};

use super::{Plan, failover::LostTails, order::Journals, positions};

pub(super) const TOPIC: &str = "orders";
pub(super) const GROUP: &str = "billing-order-confirmed";
/// What the service `ordered` consumes, as which group, in how many partitions.
pub(super) const STEPS_TOPIC: &str = "steps";
pub(super) const STEPS_GROUP: &str = "steps-journal";
const STEPS_PARTITIONS: i32 = 4;
/// Its database, on the same server.
pub(super) const STEPS_DATABASE: &str = "ordered";
/// Its tables: what was recorded within units, and what was performed outside of them.
const STEPS_TABLES: &str = "create table journal (place bigint generated always as identity primary key, \
                            key text not null, number int not null); \
                            create table performed (like journal including all)";
/// At the beginning.
pub(super) const PARTITIONS: i32 = 6;
/// The retry tiers. More, and longer in all, than the faults of the provider and a stop of half a minute can use up, so
/// that no event may end in one.
pub(super) const TIERS: [&str; 6] = ["1s", "3s", "10s", "20s", "30s", "40s"];
/// The service's role in the database.
pub(super) const ROLE: &str = "billing";
/// How many sessions the database has for everybody.
pub(super) const SESSIONS: usize = 96;
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
    pub(super) ordered_variables: Vec<(&'static str, String)>,
    /// For files of the faults, which every account may enter.
    pub(super) scratch: TempDir,
    /// How often the broker and the database were stopped.
    pub(super) stops: Stops,
    /// What was lost with databases.
    pub(super) lost_tails: LostTails,
    /// To the same server as the other one, and never disturbed: for those who look on.
    onlookers: Proxy,
    /// The logs of databases that were replaced.
    old_logs: String,
    pub(super) broker: LocalKafka,
    pub(super) postgres: PrivatePostgres,
}

/// How often a component was stopped, in order or as in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stops {
    pub(super) broker: usize,
    pub(super) postgres: usize,
}

/// How something stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    InOrder,
    AtOnce,
}

impl World {
    pub(super) async fn start(plan: &Plan, provider: &ProviderOptions) -> Result<Self> {
        let logs = plan.logs.as_path();
        if logs.exists() {
            fs::remove_dir_all(logs).with_context(|| format!("cannot empty {}", logs.display()))?;
        }
        fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let settings = BTreeMap::from([("max_connections".to_owned(), SESSIONS.to_string())]);
        let (broker, postgres, provider) = tokio::try_join!(
            LocalKafka::start(KafkaOptions {
                properties: plan.membership.broker_properties(),
                ..KafkaOptions::default()
            }),
            PrivatePostgres::start(PostgresOptions { settings, ..PostgresOptions::default() }),
            ProviderProcess::start(provider),
        )?;
        let kafka = KafkaClient::new(broker.brokers())?;
        kafka.create_topic(TOPIC, PARTITIONS, &[]).await?;
        kafka.create_topic(STEPS_TOPIC, STEPS_PARTITIONS, &[]).await?;
        // A role that is no superuser: connections are kept free for those.
        let password = format!("{:032x}", rand::random::<u128>());
        let mut admin = PgConnection::connect(&postgres.url("postgres")).await?;
        for statement in [
            format!("create role {ROLE} login password '{password}'"),
            format!("create database {ROLE} owner {ROLE}"),
            format!("create database {STEPS_DATABASE} owner {ROLE}"),
        ] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await?;
        }
        admin.close().await?;
        let server = ([127, 0, 0, 1], postgres.port()).into();
        let (proxy, onlookers) = tokio::try_join!(Proxy::start(server), Proxy::start(server))?;
        let url = |database: &str| format!("postgres://{ROLE}:{password}@{}/{database}", proxy.addr());
        let (database, steps_database) = (url(ROLE), url(STEPS_DATABASE));
        let migrated = run_to_end(&["migrate"], &[("DATABASE_URL", &database)], MIGRATE_LIMIT).await?;
        ensure!(migrated.status.success(), "no schema: {}", String::from_utf8_lossy(&migrated.stderr));
        let settings = PgSettings { max_connections: 2, ..PgSettings::new(steps_database.as_str()) };
        let pool = infra_postgres::connect(&settings).await?;
        migrate_delivery(&pool, PartitionPlan::default(), EventId::generate().made_at()).await?;
        pool.execute(sqlx::raw_sql(STEPS_TABLES)).await?;
        pool.close().await;
        // A killed member is noticed after its session only.
        let both = [
            ("KAFKA_BROKERS", broker.brokers()),
            ("KAFKA_SESSION_TIMEOUT", "4s".to_owned()),
            ("DRAIN_LIMIT", "3s".to_owned()),
        ];
        let of_billing = [
            ("KAFKA_TOPIC", TOPIC.to_owned()),
            ("KAFKA_GROUP", GROUP.to_owned()),
            ("RETRY_TIERS", TIERS.join(",")),
            ("BATCH_MAX", plan.batch_max.to_string()),
            ("DATABASE_URL", database),
            ("DATABASE_CONNECTIONS", "10".to_owned()),
            ("PAYMENT_URL", provider.url().to_owned()),
            ("PAYMENT_LOOKUP", "on".to_owned()),
            // For the timelines of events.
            ("LOG", "info,core_delivery=debug,sqlx::postgres::notice=warn".to_owned()),
        ];
        let of_ordered = [
            ("KAFKA_TOPIC", STEPS_TOPIC.to_owned()),
            ("KAFKA_GROUP", STEPS_GROUP.to_owned()),
            ("BATCH_MAX", plan.batch_max.to_string()),
            ("DATABASE_URL", steps_database),
        ];
        let variables: Vec<_> = both.iter().cloned().chain(of_billing).collect();
        positions::begin(&kafka, &variables).await?;
        let ordered_variables = both.iter().cloned().chain(of_ordered).collect();
        let mut scratch = tempfile::Builder::new();
        scratch.prefix("chaos.").permissions(fs::Permissions::from_mode(0o755));
        let scratch = scratch.tempdir_in("/tmp").context("cannot create a folder under /tmp")?;
        let ledger = Ledger::connect(&past(&onlookers, &postgres)).await?;
        Ok(Self {
            kafka,
            ledger,
            provider: Arc::new(provider),
            proxy,
            logs: logs.to_owned(),
            variables,
            ordered_variables,
            scratch,
            stops: Stops::default(),
            lost_tails: LostTails::default(),
            onlookers,
            old_logs: String::new(),
            broker,
            postgres,
        })
    }

    /// Stops the broker.
    pub(super) async fn stop_broker(&mut self, stop: Stop) -> Result<()> {
        self.stops.broker += 1;
        match stop {
            Stop::InOrder => self.broker.stop().await,
            Stop::AtOnce => self.broker.stop_immediately().await,
        }
    }

    /// Stops the database.
    pub(super) async fn stop_postgres(&mut self, stop: Stop) -> Result<()> {
        self.stops.postgres += 1;
        match stop {
            Stop::InOrder => Ok(self.postgres.stop().await?),
            Stop::AtOnce => Ok(self.postgres.stop_immediately().await?),
        }
    }

    /// Another server takes the place of the database, for everybody. Returns the one that it was.
    pub(super) fn replace_postgres(&mut self, by: PrivatePostgres) -> Result<PrivatePostgres> {
        let server = ([127, 0, 0, 1], by.port()).into();
        let old = std::mem::replace(&mut self.postgres, by);
        self.old_logs += &log_of(&old)?;
        self.proxy.lead_to(server);
        self.onlookers.lead_to(server);
        Ok(old)
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
        Ok(lag + self.kafka.lag(STEPS_GROUP, STEPS_TOPIC).await?)
    }

    /// What was recorded and performed, and the topic that it was to be in the order of.
    pub(super) async fn journals(&self) -> Result<Journals> {
        let mut session = PgConnection::connect(&self.postgres.url(STEPS_DATABASE)).await?;
        let recorded = sqlx::query_as("select key, number from journal order by place").fetch_all(&mut session).await?;
        let performed = sqlx::query_as("select key, number from performed order by place").fetch_all(&mut session);
        let performed = performed.await?;
        Ok(Journals {
            topic: self.kafka.read_all(STEPS_TOPIC).await?,
            recorded,
            performed,
            made_again: self.lost_tails.keys.clone(),
        })
    }

    /// How often the group was balanced anew, as the broker tells.
    pub(super) fn rebalances(&self) -> Result<usize> {
        let log = self.broker.folder().join("log");
        let log = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        Ok(String::from_utf8_lossy(&log).matches(&format!("Stabilized group {GROUP} ")).count())
    }

    /// What the database complained of, and how often: the faults that reached it.
    pub(super) fn complaints(&self) -> Result<BTreeMap<&'static str, usize>> {
        let log = self.old_logs.clone() + &log_of(&self.postgres)?;
        let counted = COMPLAINTS.iter().map(|complaint| (*complaint, log.matches(complaint).count()));
        Ok(counted.filter(|(_, times)| *times > 0).collect())
    }
}

/// What the server has logged.
fn log_of(postgres: &PrivatePostgres) -> Result<String> {
    let log = postgres.folder().join("log");
    let log = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&log).into_owned())
}

/// The superuser's URL of the ledger's database, by the onlookers' way.
fn past(onlookers: &Proxy, postgres: &PrivatePostgres) -> String {
    postgres.url(ROLE).replace(&format!(":{}/", postgres.port()), &format!(":{}/", onlookers.addr().port()))
}

/// Words of the database's log.
const COMPLAINTS: [&str; 9] = [
    "No space left on device",
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
