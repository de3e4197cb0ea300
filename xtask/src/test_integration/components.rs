//! The components that one run of the tests shares; how each is started is the testbed's.

use std::time::Instant;

use anyhow::{Error, Result};
use testbed::{KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres};
use tokio::runtime::Runtime;

/// Everything that was started. It ends with this value, and at the latest with this process.
pub(super) struct Components {
    kafka: Option<LocalKafka>,
    postgres: Option<PrivatePostgres>,
}

/// A component that could not start.
pub(super) struct Failure {
    pub(super) component: &'static str,
    pub(super) error: Error,
}

impl Components {
    /// Starts both at once, and says how long each took.
    pub(super) fn start_local() -> Result<(Self, Vec<Failure>)> {
        println!("starting Kafka and PostgreSQL (the first start on a machine fetches Kafka)");
        let begun = Instant::now();
        let runtime = Runtime::new()?;
        let postgres = runtime.spawn(async move {
            let started = PrivatePostgres::start(PostgresOptions::default()).await;
            started.inspect(|server| announce("PostgreSQL", &server.port(), begun))
        });
        let kafka = runtime.spawn(async move {
            let started = LocalKafka::start(KafkaOptions::default()).await;
            started.inspect(|server| announce("Kafka", &server.address().port(), begun))
        });
        let mut failures = Vec::new();
        let mut noted = |component, error| failures.push(Failure { component, error });
        let postgres = runtime.block_on(postgres)?.map_err(|error| noted("PostgreSQL", error)).ok();
        let kafka = runtime.block_on(kafka)?.map_err(|error| noted("Kafka", error)).ok();
        Ok((Self { kafka, postgres }, failures))
    }

    /// What the tests find them by.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let kafka = self.kafka.as_ref().map(|kafka| ("TEST_KAFKA_BROKERS", kafka.brokers()));
        let postgres = self.postgres.as_ref().map(|postgres| ("TEST_DATABASE_URL", postgres.url("postgres")));
        kafka.into_iter().chain(postgres).collect()
    }
}

fn announce(component: &str, port: &u16, begun: Instant) {
    println!("{component} is ready on port {port} after {:.1} s", begun.elapsed().as_secs_f32());
}
