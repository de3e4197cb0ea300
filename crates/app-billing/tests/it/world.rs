//! One test's own world: a topic, a group, a database and a provider, all of them real.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use core_order::{Event, OrderConfirmed};
use sandbox::provider::{Provider, ProviderSettings};
use sqlx::Connection;
use testbed::clients::{KafkaClient, Ledger, ReadRecord, Service};
use testbed::embedded::EmbeddedTopics;
use testbed::{Backend, unique_name, wait_until};

/// How long anything may take that should happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The retry tiers: the first is as long as the sandbox provider's `Retry-After`.
pub(crate) const TIERS: [&str; 2] = ["1s", "2s"];

pub(crate) struct World {
    pub(crate) kafka: KafkaClient,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) ledger: Ledger,
    pub(crate) provider: Provider,
    pub(crate) database_url: String,
    brokers: String,
    partitions: i32,
    /// Set where the broker neither tells of its topics nor lets the service create them.
    embedded: Option<EmbeddedTopics>,
}

impl World {
    /// A world whose topic has this many partitions.
    pub(crate) async fn new(partitions: i32, provider: ProviderSettings) -> Result<Self> {
        let backend = Backend::from_env()?;
        let database = backend.database_url.clone();
        Self::on_server(&database, partitions, provider).await
    }

    /// A world whose database is on this server, reached by an administrator's URL.
    pub(crate) async fn on_server(admin_url: &str, partitions: i32, provider: ProviderSettings) -> Result<Self> {
        Self::on(&Backend::from_env()?.kafka_brokers, admin_url, partitions, provider).await
    }

    /// The same on these brokers.
    pub(crate) async fn on(
        brokers: &str,
        admin_url: &str,
        partitions: i32,
        provider: ProviderSettings,
    ) -> Result<Self> {
        let kafka = KafkaClient::new(brokers)?;
        let (topic, group) = (unique_name("orders"), unique_name("billing"));
        kafka.create_topic(&topic, partitions, &[]).await?;
        let database_url = create_database(admin_url, &unique_name("billing")).await?;
        let embedded = EmbeddedTopics::of(brokers)?;
        Ok(Self {
            kafka,
            embedded,
            topic,
            group,
            partitions,
            ledger: Ledger::connect(&database_url).await?,
            provider: Provider::start(SocketAddr::from(([127, 0, 0, 1], 0)), provider).await?,
            database_url,
            brokers: brokers.to_owned(),
        })
    }

    /// Starts the service in this world.
    pub(crate) async fn service(&self) -> Result<Service> {
        self.service_with(&[]).await
    }

    /// Starts it with more settings, which win.
    pub(crate) async fn service_with(&self, settings: &[(&str, &str)]) -> Result<Service> {
        let mut all = self.settings();
        all.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.create_copies(&all).await?;
        Service::start(&all.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>()).await
    }

    /// What configures the program in this world.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("KAFKA_BROKERS", self.brokers.clone()),
            ("KAFKA_TOPIC", self.topic.clone()),
            ("KAFKA_GROUP", self.group.clone()),
            ("KAFKA_SESSION_TIMEOUT", "6s".to_owned()),
            ("DRAIN_LIMIT", "5s".to_owned()),
            ("RETRY_TIERS", TIERS.join(",")),
            ("DATABASE_URL", self.database_url.clone()),
            ("DATABASE_CONNECTIONS", "6".to_owned()),
            ("PAYMENT_URL", self.provider.base_url()),
        ];
        if self.embedded.is_some() {
            settings.push(("KAFKA_CHECK_TOPICS", "false".to_owned()));
        }
        settings
    }

    /// Makes the topics that a service with these settings copies to, where it cannot do so itself.
    async fn create_copies(&self, settings: &[(&str, String)]) -> Result<()> {
        let value = |name| settings.iter().rfind(|(key, _)| *key == name).map_or("", |(_, value)| value.as_str());
        let of_the_group = format!("{}.{}", value("KAFKA_TOPIC"), value("KAFKA_GROUP"));
        let retries = value("RETRY_TIERS").split(',').map(|delay| format!("{of_the_group}.retry.{delay}"));
        self.creates_copies(retries.chain([format!("{of_the_group}.dlq")])).await.map(drop)
    }

    /// Makes these topics if the broker lets nobody do so who is only its client; whether it was one of that kind.
    pub(crate) async fn creates_copies(&self, topics: impl IntoIterator<Item = impl AsRef<str>>) -> Result<bool> {
        let Some(embedded) = self.embedded else { return Ok(false) };
        for topic in topics {
            embedded.create(topic.as_ref(), self.partitions).await?;
        }
        Ok(true)
    }

    /// Sends events as their producer does.
    pub(crate) async fn send<'a>(&self, events: impl IntoIterator<Item = &'a OrderConfirmed>) -> Result<()> {
        for event in events {
            self.kafka.produce(&self.topic, event.key(), &event.to_json()).await?;
        }
        Ok(())
    }

    /// Removes the positions that the database holds.
    pub(crate) async fn forget_positions(&self) -> Result<()> {
        let mut database = sqlx::PgConnection::connect(&self.database_url).await?;
        sqlx::query("delete from consumer_position").execute(&mut database).await?;
        Ok(())
    }

    /// Waits until the ledger holds this many charges and nothing of source and tiers is left to read.
    pub(crate) async fn settled(&self, charges: usize) -> Result<()> {
        let settled = self
            .until(&format!("{charges} charges and no lag"), async || {
                self.ledger.charge_count().await.is_ok_and(|count| count == charges) && self.lag().await == Some(0)
            })
            .await;
        if let Err(error) = settled {
            let (count, letters) = (self.ledger.charge_count().await, self.dead_letters().await?);
            let letters: Vec<_> = letters.iter().map(|letter| header(letter, "delivery-error-text")).collect();
            return Err(
                error.context(format!("{count:?} charges, lag {:?}, dead letters {letters:?}", self.lag().await))
            );
        }
        Ok(())
    }

    /// Waits for a condition, soon.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) -> Result<()> {
        wait_until(what, SOON, condition).await
    }

    /// What source and tiers hold that the group has not committed.
    pub(crate) async fn lag(&self) -> Option<i64> {
        let mut lag = self.kafka.lag(&self.group, &self.topic).await.ok()?;
        for tier in TIERS {
            lag += self.kafka.lag(&self.group, &self.retry_topic(tier)).await.ok()?;
        }
        Some(lag)
    }

    pub(crate) fn retry_topic(&self, delay: &str) -> String {
        format!("{}.{}.retry.{delay}", self.topic, self.group)
    }

    pub(crate) fn dead_letter_topic(&self) -> String {
        format!("{}.{}.dlq", self.topic, self.group)
    }

    /// Whether no copy was ever written: no retry, no dead letter.
    pub(crate) async fn moved_nothing(&self) -> Result<bool> {
        let mut written = self.dead_letters().await?.len();
        for tier in TIERS {
            written += self.kafka.read_all(&self.retry_topic(tier)).await?.len();
        }
        Ok(written == 0)
    }

    /// The dead letters, in the order of their origins: how they follow each other in their own topic is not promised.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<ReadRecord>> {
        let mut letters = self.kafka.read_all(&self.dead_letter_topic()).await?;
        let number = |letter: &ReadRecord, key| header(letter, key).and_then(|text| text.parse::<i64>().ok());
        letters.sort_by_key(|letter| {
            (number(letter, "delivery-origin-partition"), number(letter, "delivery-origin-offset"))
        });
        Ok(letters)
    }

    /// Provider, ledger and claims agree: exactly these events were charged, each once, and no other.
    pub(crate) async fn charged_exactly(&self, events: &[OrderConfirmed]) -> Result<()> {
        let record = self.provider.record();
        ensure!(record.orders_charged_twice().is_empty(), "charged twice: {:?}", record.orders_charged_twice());
        ensure!(record.keys_with_several_bodies().is_empty(), "D-10: {:?}", record.keys_with_several_bodies());
        let paid = events.iter().filter(|event| event.total().minor_units > 0);
        let expected: BTreeSet<_> =
            paid.map(|e| (e.id().to_string(), e.order_id().to_string(), e.total().minor_units)).collect();
        let charged: BTreeSet<_> =
            record.succeeded().map(|c| (c.idempotency_key.to_string(), c.order_id.to_string(), c.amount)).collect();
        ensure!(charged == expected, "the provider charged {charged:?}, expected {expected:?}");

        let rows = self.ledger.charges().await?;
        ensure!(rows.iter().all(|row| row.charged), "a committed reservation was not completed");
        let in_ledger: BTreeSet<_> =
            rows.iter().map(|row| (row.event_id.to_string(), row.order_id.clone(), row.amount_minor)).collect();
        let expected: BTreeSet<_> =
            events.iter().map(|e| (e.id().to_string(), e.order_id().to_string(), e.total().minor_units)).collect();
        ensure!(in_ledger == expected, "the ledger holds {in_ledger:?}, expected {expected:?}");

        let claims: BTreeSet<_> = self.ledger.claims(&self.group).await?.iter().map(ToString::to_string).collect();
        let expected: BTreeSet<_> = events.iter().map(|event| event.id().to_string()).collect();
        ensure!(claims == expected, "claims {claims:?}, expected {expected:?}");
        Ok(())
    }
}

/// A database of this test's own; its URL.
async fn create_database(admin_url: &str, name: &str) -> Result<String> {
    let mut admin = sqlx::PgConnection::connect(admin_url).await?;
    sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}"))).execute(&mut admin).await?;
    let (server, _) = admin_url.rsplit_once('/').context("the URL names a database")?;
    Ok(format!("{server}/{name}"))
}

/// A header of a record, as text.
pub(crate) fn header(record: &ReadRecord, key: &str) -> Option<String> {
    let (_, value) = record.headers.iter().find(|(name, _)| name == key)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The count of a verdict in the service's metrics.
pub(crate) async fn verdicts(service: &Service, verdict: &str) -> Result<u64> {
    let metrics = service.metrics().await?;
    let wanted = format!("verdict=\"{verdict}\"");
    let line = metrics.lines().find(|line| line.starts_with("delivery_events_total{") && line.contains(&wanted));
    Ok(line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok()).unwrap_or(0))
}
