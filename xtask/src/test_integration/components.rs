//! The components that one run of the tests shares; how each is started is the testbed's.

use std::{any::Any, time::Instant};

use anyhow::{Error, Result};
use testbed::{KafkaOptions, LocalKafka, PostgresOptions, PrivatePostgres, holder::Component};
use tokio::runtime::Runtime;

use super::skips::Gap;

/// Everything that was started. It ends with this value, and at the latest with this process.
pub(crate) struct Components {
    backend: &'static str,
    variables: Vec<(&'static str, String)>,
    failures: Vec<Failure>,
    /// What to read before the tests begin, a component a line.
    described: Vec<String>,
    gaps: &'static [Gap],
    held: Vec<Box<dyn Any>>,
}

/// Something that could not start.
pub(super) struct Failure {
    pub(super) component: &'static str,
    pub(super) error: Error,
}

impl Failure {
    /// The component of a failure that leaves the run with nothing.
    pub(super) const BACKEND: &'static str = "the backend";
}

impl Components {
    /// None yet.
    pub(super) fn new(backend: &'static str) -> Self {
        Self {
            backend,
            variables: Vec::new(),
            failures: Vec::new(),
            described: Vec::new(),
            gaps: &[],
            held: Vec::new(),
        }
    }

    /// Adds one that serves, by what the tests find it by.
    pub(super) fn add(&mut self, component: Component, about: &str, value: String) {
        self.described.push(format!("{}: {about}", component.name()));
        self.variables.push((component.variable(), value));
    }

    /// Adds one that could not start.
    pub(super) fn fail(&mut self, component: &'static str, error: Error) {
        self.failures.push(Failure { component, error });
    }

    /// Notes what these components cannot do.
    pub(super) fn cannot(&mut self, gaps: &'static [Gap]) {
        self.gaps = gaps;
    }

    /// Keeps what must live as long as the components serve.
    pub(super) fn hold(&mut self, server: impl Any) {
        self.held.push(Box::new(server));
    }

    /// Starts both as processes, at once, and says how long each took.
    pub(super) fn start_local() -> Result<Self> {
        println!("starting Kafka and PostgreSQL (the first start on a machine fetches Kafka)");
        let begun = Instant::now();
        let runtime = Runtime::new()?;
        let postgres = runtime.spawn(async move {
            let started = PrivatePostgres::start(PostgresOptions::default()).await;
            started.map(|server| (server, begun.elapsed()))
        });
        let kafka = runtime.spawn(async move {
            let started = LocalKafka::start(KafkaOptions::default()).await;
            started.map(|server| (server, begun.elapsed()))
        });
        let mut components = Self::new("local");
        match runtime.block_on(postgres)? {
            Ok((server, took)) => {
                let about = format!("a process on port {}, ready after {:.1} s", server.port(), took.as_secs_f32());
                components.add(Component::Postgres, &about, server.url("postgres"));
                components.hold(server);
            }
            Err(error) => components.fail(Component::Postgres.name(), error),
        }
        match runtime.block_on(kafka)? {
            Ok((server, took)) => {
                let about = format!("a process on {}, ready after {:.1} s", server.address(), took.as_secs_f32());
                components.add(Component::Kafka, &about, server.brokers());
                components.hold(server);
            }
            Err(error) => components.fail(Component::Kafka.name(), error),
        }
        Ok(components)
    }

    /// What the tests find them by.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        self.variables.clone()
    }

    /// What they cannot do, and which tests need it.
    pub(super) fn gaps(&self) -> &'static [Gap] {
        self.gaps
    }

    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Why not all of them serve, on one line.
    pub(crate) fn failed(&self) -> Option<String> {
        let reasons = self.failures.iter().map(|Failure { component, error }| match *component {
            Failure::BACKEND => format!("{error:#}"),
            component => format!("{component} could not start: {error:#}"),
        });
        let reasons: Vec<String> = reasons.collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Says what the tests run on.
    pub(crate) fn describe(&self) {
        println!("backend: {}", self.backend);
        for line in &self.described {
            println!("  {line}");
        }
        println!("  servers that a test stops or sets back: its own processes, never containers");
    }
}
