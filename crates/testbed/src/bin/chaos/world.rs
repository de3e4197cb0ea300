//! The components of one run and where they are; what is done to them is the campaign's.

use std::{
    fmt::{self, Display},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use testbed::{
    KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres,
    clients::{Books, KafkaClient, Ledger, ProviderOptions, ProviderProcess, Service, run_to_end},
};

use crate::campaign::Plan;

pub(crate) const TOPIC: &str = "orders";
const GROUP: &str = "billing-order-confirmed";
const PARTITIONS: i32 = 6;
/// The retry tiers, short ones so that the run ends soon.
const TIERS: [&str; 3] = ["1s", "3s", "10s"];
/// How long the schema may take.
const MIGRATE_LIMIT: Duration = Duration::from_secs(60);

/// Everything that outlives the service. It ends with us.
pub(crate) struct World {
    pub(crate) kafka: KafkaClient,
    pub(crate) ledger: Ledger,
    pub(crate) provider: ProviderProcess,
    logs: PathBuf,
    variables: Vec<(&'static str, String)>,
    // Last: what uses them ends first.
    _broker: LocalKafka,
    _postgres: PrivatePostgres,
}

impl World {
    pub(crate) async fn start(logs: &Path, faults: f64, plan: &Plan) -> Result<Self> {
        if logs.exists() {
            fs::remove_dir_all(logs).with_context(|| format!("cannot empty {}", logs.display()))?;
        }
        fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let behaviour = ProviderOptions {
            latency_ms: 3,
            fault_share: faults,
            max_faults_per_key: 2,
            decline_share: 0.0,
            seed: plan.seed,
        };
        let (broker, postgres, provider) = tokio::try_join!(
            LocalKafka::start(KafkaOptions::default()),
            PrivatePostgres::start(PostgresOptions::default()),
            ProviderProcess::start(&behaviour),
        )?;
        let kafka = KafkaClient::new(broker.brokers())?;
        kafka.create_topic(TOPIC, PARTITIONS, &[]).await?;
        let database = postgres.create_database("billing").await?;
        let migrated = run_to_end(&["migrate"], &[("DATABASE_URL", &database)], MIGRATE_LIMIT).await?;
        ensure!(migrated.status.success(), "no schema: {}", String::from_utf8_lossy(&migrated.stderr));
        let variables = vec![
            ("KAFKA_BROKERS", broker.brokers()),
            ("KAFKA_TOPIC", TOPIC.to_owned()),
            ("KAFKA_GROUP", GROUP.to_owned()),
            // A killed member is noticed after its session only: the shorter it is, the sooner the next one works.
            ("KAFKA_SESSION_TIMEOUT", "6s".to_owned()),
            ("DRAIN_LIMIT", "4s".to_owned()),
            ("RETRY_TIERS", TIERS.join(",")),
            ("BATCH_MAX", plan.batch_max.to_string()),
            ("DATABASE_URL", database.clone()),
            ("PAYMENT_URL", provider.url().to_owned()),
        ];
        let ledger = Ledger::connect(&database).await?;
        let logs = logs.to_owned();
        Ok(Self { kafka, ledger, provider, logs, variables, _broker: broker, _postgres: postgres })
    }

    pub(crate) async fn start_service(&self) -> Result<Service> {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Service::start(&variables).await
    }

    /// Keeps the log of a service that has ended, or is about to.
    pub(crate) fn keep_log(&self, number: u32, service: &Service) -> Result<()> {
        let path = self.logs.join(format!("service-{number:03}.log"));
        fs::write(&path, service.log()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// How often a kept log has this text.
    pub(crate) fn times_logged(&self, text: &str) -> Result<usize> {
        let files = fs::read_dir(&self.logs)?.map(|file| Ok(fs::read_to_string(file?.path())?.matches(text).count()));
        files.sum()
    }

    /// What the group has still before it, in the source and in the retry tiers.
    pub(crate) async fn lag(&self) -> Result<i64> {
        let mut lag = self.kafka.lag(GROUP, TOPIC).await?;
        for topic in retry_topics() {
            lag += self.kafka.lag(GROUP, &topic).await?;
        }
        Ok(lag)
    }

    /// How many records have been written to the retry tiers.
    pub(crate) async fn retries(&self) -> Result<i64> {
        let mut retries = 0;
        for topic in retry_topics() {
            retries += self.kafka.end_offsets(&topic).await?.iter().sum::<i64>();
        }
        Ok(retries)
    }

    /// What everyone else has written.
    pub(crate) async fn books(&self) -> Result<Books> {
        Ok(Books {
            provider: self.provider.all_charges().await?,
            key_reuses: self.provider.summary().await?.key_reuses,
            ledger: self.ledger.charges().await?,
            claims: self.ledger.claims(GROUP).await?,
            dead_letters: self.kafka.read_all(&format!("{TOPIC}.{GROUP}.dlq")).await?,
        })
    }
}

fn retry_topics() -> impl Iterator<Item = String> {
    TIERS.iter().map(|tier| format!("{TOPIC}.{GROUP}.retry.{tier}"))
}

/// What starts the service by hand beside the world.
impl Display for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.variables.iter().try_for_each(|(name, value)| writeln!(formatter, "    {name}={value}"))?;
        write!(formatter, "    logs: {}", self.logs.display())
    }
}
