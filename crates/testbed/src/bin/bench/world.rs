//! The components of the measurements, and one measurement as figures; what is measured is each module's own.

use std::{
    borrow::Borrow,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use core_order::{Event, OrderConfirmed};
use sqlx::{Connection, Executor, PgConnection};
use testbed::{
    KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres,
    clients::{KafkaClient, ProviderOptions, ProviderProcess},
};

use crate::cpu::{Cpu, Processes};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const PARTITIONS: i32 = 6;
pub(crate) const LANES: usize = PARTITIONS as usize;

/// How long the machine may rest between two measurements, while the server writes what it has put off.
const REST: Duration = Duration::from_secs(2);

/// Everything that is the same for all measurements.
pub(crate) struct World {
    pub(crate) kafka: KafkaClient,
    pub(crate) provider: ProviderProcess,
    pub(crate) processes: Processes,
    broker: LocalKafka,
    postgres: PrivatePostgres,
}

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) events: usize,
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
}

/// A measurement that has begun.
pub(crate) struct Running {
    processes: Processes,
    begun: Instant,
    cpu: Cpu,
}

impl Running {
    pub(crate) fn begin(processes: Processes) -> Result<Self> {
        Ok(Self { processes, cpu: Cpu::now(&processes)?, begun: Instant::now() })
    }

    pub(crate) fn end(self, events: usize) -> Result<Measured> {
        let took = self.begun.elapsed();
        Ok(Measured { events, took, cpu: Cpu::now(&self.processes)?.since(self.cpu) })
    }
}

impl World {
    pub(crate) async fn start(latency_ms: u64) -> Result<Self> {
        let mut options = PostgresOptions::default();
        options.settings.insert("shared_buffers".into(), "512MB".into());
        let behaviour = ProviderOptions { latency_ms, ..ProviderOptions::default() };
        let (broker, postgres, provider) = tokio::try_join!(
            LocalKafka::start(KafkaOptions::bench()),
            PrivatePostgres::start(options),
            ProviderProcess::start(&behaviour),
        )?;
        let processes = Processes::of(&postgres, &broker, &provider)?;
        let kafka = KafkaClient::new(broker.brokers())?;
        kafka.create_topic(TOPIC, PARTITIONS, &[]).await?;
        Ok(Self { kafka, provider, processes, broker, postgres })
    }

    pub(crate) fn brokers(&self) -> String {
        self.broker.brokers()
    }

    /// An empty database of a measurement's own.
    pub(crate) async fn database(&self, name: &str) -> Result<String> {
        self.postgres.create_database(name).await
    }

    /// Writes the events to the topic.
    pub(crate) async fn load(&self, events: impl IntoIterator<Item = impl Borrow<OrderConfirmed>>) -> Result<()> {
        let begun = Instant::now();
        let record = |event: &OrderConfirmed| (event.key().to_owned(), event.to_json());
        let records = events.into_iter().map(|event| record(event.borrow()));
        let loaded = self.kafka.produce_all(TOPIC, records).await?;
        println!("bench: loaded {loaded} events in {:.1} s", begun.elapsed().as_secs_f32());
        Ok(())
    }

    /// The group has nothing before it: what was measured is also what was acknowledged.
    pub(crate) async fn assert_settled(&self, group: &str) -> Result<()> {
        let lag = self.kafka.lag(group, TOPIC).await?;
        ensure!(lag == 0, "the group {group} has still {lag} events before it");
        Ok(())
    }

    /// What was measured, after a rest.
    pub(crate) async fn rested(&self, measured: Measured) -> Result<Measured> {
        self.rest().await?;
        Ok(measured)
    }

    /// Lets the server write what it has put off, so that no measurement pays for what was before.
    pub(crate) async fn rest(&self) -> Result<()> {
        let mut connection = PgConnection::connect(&self.postgres.url("postgres")).await?;
        connection.execute("checkpoint").await?;
        connection.close().await?;
        tokio::time::sleep(REST).await;
        Ok(())
    }
}
