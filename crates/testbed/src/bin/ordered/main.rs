//! A small service whose events have an order within their key, which it writes down in its own database: what the chaos
//! run checks the order of effects by. It holds no rule of its own; all order comes from the kernel.
//!
//! Nothing of it goes through the retry topics: where its database is away it halts, and the events stay where they are.

mod journal;
mod steps;

use std::{process::ExitCode, sync::Arc, time::Duration};

use adapters_kafka::{KafkaPublisher, KafkaSettings, KafkaStream, TopicPlan, ensure_topics};
use adapters_tokio::TokioRuntime;
use anyhow::{Result, ensure};
use clap::Parser;
use core_delivery::{
    claim::ConsumerGroup,
    delivery::{Consumer, ConsumerSettings, Health, StormLimits, Topology},
    ports::Runtime,
    record::Topic,
};
use infra_postgres::{PgSettings, PgStore, check_durability, connect};
use tokio::signal::unix::{SignalKind, signal};

use journal::Journal;
use steps::StepDecoder;

/// How long the last tasks may take after the stop.
const LAST_TASKS: Duration = Duration::from_secs(15);

/// Journals the numbered events of a topic.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, env)]
    kafka_brokers: String,
    #[arg(long, env)]
    kafka_topic: String,
    #[arg(long, env)]
    kafka_group: String,
    /// librdkafka's properties, key=value, separated by semicolons.
    #[arg(long, env, value_delimiter = ';', value_parser = property)]
    kafka_properties: Vec<(String, String)>,
    #[arg(long, env, value_parser = seconds)]
    kafka_session_timeout: Duration,
    #[arg(long, env, value_parser = seconds)]
    drain_limit: Duration,
    #[arg(long, env)]
    database_url: String,
    #[arg(long, env)]
    batch_max: usize,
}

fn property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("is not key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim_end_matches('s').parse().map_err(|_| "is no number of seconds".to_owned())?;
    Ok(Duration::from_secs(seconds))
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().json().flatten_event(true).with_writer(std::io::stderr).init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let database = |max_connections| PgSettings {
        max_connections,
        application_name: "ordered".to_owned(),
        ..PgSettings::new(arguments.database_url.as_str())
    };
    let (units, maintenance) = (connect(&database(5)).await?, connect(&database(1)).await?);
    check_durability(&units).await?;
    // A pool of its own: what is performed is written while a unit of the same lane is open.
    let journal = Journal::new(connect(&database(3)).await?);
    let kafka = KafkaSettings {
        client_id: "ordered".to_owned(),
        properties: arguments.kafka_properties,
        session_timeout: arguments.kafka_session_timeout,
        drain_limit: arguments.drain_limit,
        ..KafkaSettings::new(arguments.kafka_brokers)
    };
    let plan = TopicPlan::new(&Topic::new(arguments.kafka_topic), &arguments.kafka_group, &[]);
    ensure_topics(&kafka, &plan, true).await?;
    let topology = Topology {
        group: ConsumerGroup::new(arguments.kafka_group.as_str()),
        source: plan.source,
        tiers: Vec::new(),
        dead_letters: plan.dead_letter,
    };
    let (stream, control) = KafkaStream::start(&kafka, &arguments.kafka_group, &topology.consumed())?;
    let runtime = Arc::new(TokioRuntime::current());
    let consumer = Consumer {
        settings: ConsumerSettings {
            topology,
            batch_max: arguments.batch_max,
            calls_max: 64,
            straggler_deadline: Duration::from_secs(1),
            storm: StormLimits::default(),
            clock_skew: Duration::from_secs(300),
        },
        store: Arc::new(PgStore::new(units, maintenance)),
        handler: Arc::new(journal),
        decoder: Arc::new(StepDecoder),
        publisher: Arc::new(KafkaPublisher::new(&kafka)?),
        runtime: Arc::clone(&runtime) as Arc<dyn Runtime>,
        health: Health::default(),
    };
    tracing::info!("consuming");
    let consumed = consumer.run(stream, control, async move { terminated.recv().await.unwrap_or_default() }).await;
    let idle = runtime.wait_idle(LAST_TASKS).await;
    consumed?;
    ensure!(idle.is_ok(), "tasks are left running");
    Ok(())
}
