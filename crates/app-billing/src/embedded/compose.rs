//! The world of the embedded run put together: a broker in this process, a private PostgreSQL, a payment provider with faults, and
//! the sample that is written to the topic. Everything in it goes when the process ends, however that is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use adapters_kafka::{EmbeddedBroker, KafkaPublisher, KafkaSettings, LaneFacts, TopicPlan, read_topic};
use anyhow::{Context, Error, anyhow};
use bytes::Bytes;
use core_delivery::event::{Event, EventId};
use core_delivery::headers::last_failure;
use core_delivery::ports::{Decoded, EventDecoder, Publisher};
use core_delivery::record::{OutgoingRecord, Topic};
use core_order::OrderConfirmedDecoder;
use futures::{StreamExt, TryStreamExt};
use sandbox::postgres::{PostgresOptions, PrivatePostgres};
use sandbox::provider::{Provider, ProviderSettings};
use sandbox::samples::{Sample, Subject, samples};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::screen::Screen;
use super::verdicts::Books;
use crate::cli::Failure;
use crate::compose::open_database;
use crate::config::{Config, Settings};
use crate::operators::compose::{Desk, database};
use crate::operators::dlq;

/// Of the source, and so of the topics for copies.
const PARTITIONS: u16 = 6;

/// The most sample orders: with their duplicates, at less than 400 bytes each, they fit into the broker.
pub(super) const ORDERS_MAX: i64 = 50_000;
const _: () = assert!(ORDERS_MAX as usize * 5 / 4 * 400 / (PARTITIONS as usize) < EmbeddedBroker::PARTITION_BYTES);

/// The share of orders whose first tries meet a fault of the provider.
const FAULT_SHARE: f64 = 0.08;

/// Records on their way to the broker at a time.
const WRITES: usize = 256;

pub(super) struct World {
    broker: EmbeddedBroker,
    postgres: PrivatePostgres,
    provider: Provider,
    provider_settings: ProviderSettings,
    topic: Topic,
}

impl World {
    /// Starts everything, and says what it starts.
    pub(super) async fn start(config: &Config, screen: &Screen) -> Result<Self, Failure> {
        let dependency = |error: Error| Failure::Dependency(error);
        let tell = screen.clone();
        let postgres = screen.step("a private PostgreSQL", async {
            let progress = move |progress| tell.note(&format!("{progress}"));
            PrivatePostgres::start(PostgresOptions::default(), &progress).await.map_err(|error| {
                dependency(Error::new(error).context(
                    "the embedded run has no PostgreSQL (with KAFKA_BROKERS, DATABASE_URL and PAYMENT_URL set, yours \
                     are used and nothing is embedded)",
                ))
            })
        });
        let postgres = postgres.await?;
        let topic = Topic::new(config.kafka_topic.as_str());
        let broker = screen.step("a Kafka broker in this process", async {
            let broker = EmbeddedBroker::start().map_err(|error| dependency(error.into()))?;
            let plan = TopicPlan::new(&topic, &config.kafka_group, &config.retry_tiers);
            for topic in std::iter::once(&plan.source).chain(plan.copies()) {
                broker.create_topic(topic, PARTITIONS).map_err(|error| Failure::Configuration(error.into()))?;
            }
            Ok::<_, Failure>(broker)
        });
        let broker = broker.await?;
        let provider_settings = ProviderSettings { fault_share: FAULT_SHARE, ..ProviderSettings::default() };
        let provider = screen.step("a payment provider that sometimes fails", async {
            let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            Provider::start(anywhere, provider_settings.clone()).await.map_err(|error| dependency(error.into()))
        });
        let provider = provider.await?;
        Ok(Self { broker, postgres, provider, provider_settings, topic })
    }

    /// The service's settings in this world.
    pub(super) fn settings(&self, config: Config) -> Result<Settings, Failure> {
        Config {
            kafka_brokers: Some(self.broker.brokers().to_owned()),
            // Everything is there, and the broker tells nothing of its topics.
            kafka_check_topics: false,
            database_url: Some(self.postgres.url("postgres").into()),
            payment_url: Some(self.provider.base_url()),
            ..config
        }
        .checked()
    }

    /// New sample records.
    pub(super) fn samples(&self, orders: usize) -> Vec<Sample> {
        samples(orders, self.provider_settings.seed, &self.provider_settings)
    }

    /// Writes the records in their order, in a task of its own.
    pub(super) fn feed(&self, samples: &[Sample]) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
        let publisher = KafkaPublisher::new(&KafkaSettings::new(self.broker.brokers()));
        let publisher = Arc::new(publisher.map_err(|error| Failure::Dependency(error.into()))?);
        let record = |sample: &Sample| OutgoingRecord {
            topic: self.topic.clone(),
            // No partition has this number, so that the key decides.
            partition: -1,
            key: Some(sample.key.clone()),
            payload: sample.payload.clone(),
            headers: Vec::new(),
        };
        let records: Vec<OutgoingRecord> = samples.iter().map(record).collect();
        Ok(tokio::spawn(async move {
            let publish = |record: OutgoingRecord| {
                let publisher = Arc::clone(&publisher);
                async move { publisher.publish(&record).await.context("the sample is not written") }
            };
            let mut records = records.into_iter();
            // Alone, because it makes the publisher learn the topic's partitions; all others then keep their order.
            for first in records.by_ref().take(1) {
                publish(first).await.map_err(Failure::Dependency)?;
            }
            let writes = futures::stream::iter(records.map(publish)).buffered(WRITES);
            writes.try_for_each(|()| async { Ok(()) }).await.map_err(Failure::Dependency)
        }))
    }

    /// What source and retry topics hold that is not committed yet.
    pub(super) async fn lag(&self, settings: &Settings) -> Result<i64, Failure> {
        let desk = Desk::new(settings.clone())?;
        let lanes = desk.facts(&desk.topology.consumed()).await?;
        let waits = |facts: &LaneFacts| {
            let done = facts.arrival.committed.unwrap_or(facts.arrival.first);
            facts.arrival.end.0 - done.0
        };
        Ok(lanes.iter().map(waits).sum())
    }

    /// What is written about the sample, read afresh and not through the audit.
    pub(super) async fn books(&self, desk: &Desk) -> Result<Books, Failure> {
        let mut books = Books::default();
        let (pool, _) = open_database(&desk.settings.database).await?;
        let ids = |rows: Vec<Uuid>| rows.into_iter().filter_map(|id| EventId::try_from(id).ok()).collect();
        let ledger = sqlx::query_scalar("select event_id from charge where charged_at is not null").fetch_all(&pool);
        books.ledger = ids(ledger.await.map_err(database)?);
        let claims = sqlx::query_scalar("select event_id from processed_event where consumer_group = $1");
        books.claims = ids(claims.bind(desk.topology.group.as_str()).fetch_all(&pool).await.map_err(database)?);
        for charge in self.provider.record().succeeded() {
            if let Ok(event) = charge.idempotency_key.parse() {
                *books.provider.entry(event).or_default() += 1;
            }
        }
        let decoder = OrderConfirmedDecoder::new(desk.settings.config.currency);
        let reading = read_topic(&desk.kafka, &desk.topology.dead_letters, |record, _| {
            let class = last_failure(&record).class.unwrap_or("none").to_owned();
            let subject = match decoder.decode(&record) {
                Decoded::Event(event) => Subject::Event(event.id()),
                _ => Subject::Record(record.key.clone().unwrap_or_else(Bytes::new)),
            };
            books.letters.entry(subject).or_default().insert(class);
        });
        reading.await.map_err(dlq::failure)?;
        Ok(books)
    }

    /// Ends it all.
    pub(super) async fn end(mut self) {
        self.provider.stop().await;
        let Self { postgres, broker, .. } = self;
        // Both wait until everything is gone.
        let gone = tokio::task::spawn_blocking(move || drop((postgres, broker))).await;
        if let Err(error) = gone {
            tracing::error!(error = %anyhow!(error), "the end of the embedded world is not known");
        }
    }
}
