//! What a scenario does to a broker: topics, records, groups. It never joins a group, so it moves no partition.

use std::{collections::VecDeque, fmt, time::Duration};

use anyhow::{Context, Result, ensure};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult},
    client::DefaultClientContext,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer},
    types::RDKafkaErrorCode,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::raw::{self, RawRecord};
use super::records::{self, ReadRecord};
use crate::embedded::EmbeddedTopics;

/// How long the broker may take for one thing.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Records that wait for the broker at once; the client library refuses more than 100,000.
const IN_FLIGHT: usize = 50_000;

/// A client of one cluster. Clones share its connections.
#[derive(Clone)]
pub struct KafkaClient {
    brokers: String,
    pub(super) producer: FutureProducer,
}

impl fmt::Debug for KafkaClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KafkaClient").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl KafkaClient {
    /// For the cluster with these bootstrap servers, `host:port[,host:port]`; it connects when it is first used.
    ///
    /// # Errors
    /// When the client library does not take the brokers.
    pub fn new(brokers: impl Into<String>) -> Result<Self> {
        let brokers = brokers.into();
        let producer = config(&brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "2")
            // As a Java producer spreads keys.
            .set("partitioner", "murmur2_random")
            .set("message.max.bytes", "10000000")
            .create()
            .context("cannot make a Kafka producer")?;
        Ok(Self { brokers, producer })
    }

    /// Creates a topic with one replica, and waits until its partitions have leaders.
    ///
    /// # Errors
    /// When it exists, the broker does not answer within 30 s, or it is to have settings and the broker is embedded.
    pub async fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) -> Result<()> {
        if let Some(topics) = EmbeddedTopics::of(&self.brokers)? {
            ensure!(config.is_empty(), "a topic of the embedded broker has no settings, {name} needs {config:?}");
            ensure!(topics.create(name, partitions).await?, "the topic {name} exists");
            return Ok(());
        }
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = config.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let outcome = self.admin()?.create_topics(&[topic], &admin_options()).await;
        one(outcome).with_context(|| format!("cannot create the topic {name}"))?;
        let until = Instant::now() + LIMIT;
        while self.end_offsets(name).await.is_err() {
            ensure!(Instant::now() < until, "the new topic {name} has no leaders");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// When it does not exist, or the broker does not answer within 30 s.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let outcome = self.admin()?.delete_topics(&[name], &admin_options()).await;
        one(outcome).with_context(|| format!("cannot delete the topic {name}"))
    }

    /// Makes this the first offset of a partition, as its retention would.
    ///
    /// # Errors
    /// When the partition does not reach so far, or the broker does not answer within 30 s.
    pub async fn delete_records(&self, topic: &str, partition: i32, first: i64) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(first))?;
        let answer = self.admin()?.delete_records(&offsets, &admin_options()).await?;
        answer.elements().iter().try_for_each(|partition| partition.error())?;
        Ok(())
    }

    /// Writes one record to the partition of its key. Returns partition and offset.
    ///
    /// # Errors
    /// When the broker does not acknowledge it within 30 s.
    pub async fn produce(&self, topic: &str, key: &str, payload: &[u8]) -> Result<(i32, i64)> {
        let record = FutureRecord::<str, [u8]>::to(topic).key(key).payload(payload);
        let delivery = self.producer.send(record, LIMIT).await.map_err(|(error, _)| error)?;
        Ok((delivery.partition, delivery.offset))
    }

    /// Writes one record to this partition; no payload is a tombstone. Returns its offset.
    ///
    /// # Errors
    /// When the broker does not acknowledge it within 30 s.
    pub async fn produce_to(
        &self,
        topic: &str,
        partition: i32,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: &[(&str, &[u8])],
    ) -> Result<i64> {
        let record = FutureRecord::<[u8], [u8]> { key, payload, ..FutureRecord::to(topic) };
        let headers = headers
            .iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(*value) }));
        let record = record.partition(partition).headers(headers);
        let delivery = self.producer.send(record, LIMIT).await.map_err(|(error, _)| error)?;
        Ok(delivery.offset)
    }

    /// Writes one record that no safe client can write.
    ///
    /// # Errors
    /// When the broker does not acknowledge it within 30 s, or the header's key has a NUL.
    pub async fn produce_raw(&self, topic: &str, record: RawRecord<'static>) -> Result<()> {
        let (brokers, topic) = (self.brokers.clone(), topic.to_owned());
        spawn_blocking(move || raw::produce(&brokers, &topic, &record)).await?
    }

    /// Writes records in order, each to the partition of its key, and waits until all are acknowledged. Returns how
    /// many there were.
    ///
    /// # Errors
    /// At the first one that the broker does not acknowledge within 30 s.
    pub async fn produce_all(
        &self,
        topic: &str,
        records: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<usize> {
        let mut waiting = VecDeque::new();
        let mut count = 0;
        for (key, payload) in records {
            if waiting.len() >= IN_FLIGHT
                && let Some(oldest) = waiting.pop_front()
            {
                acknowledged(oldest).await?;
            }
            let mut record = FutureRecord::to(topic).key(&key).payload(&payload);
            loop {
                match self.producer.send_result(record) {
                    Ok(delivery) => break waiting.push_back(delivery),
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => record = refused,
                    Err((error, _)) => return Err(error.into()),
                }
                match waiting.pop_front() {
                    Some(oldest) => acknowledged(oldest).await?,
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
            count += 1;
        }
        for delivery in waiting {
            acknowledged(delivery).await?;
        }
        Ok(count)
    }

    /// The group's offsets of the partitions from 0 on; `None` where it has none.
    ///
    /// # Errors
    /// When the broker does not answer within 30 s.
    pub async fn committed(&self, group: &str, topic: &str, partitions: i32) -> Result<Vec<Option<i64>>> {
        let (client, group, topic) = (self.clone(), group.to_owned(), topic.to_owned());
        spawn_blocking(move || {
            let consumer = client.consumer(&group)?;
            let mut asked = TopicPartitionList::new();
            asked.add_partition_range(&topic, 0, partitions - 1);
            let answer = consumer.committed_offsets(asked, LIMIT)?;
            let offset = |partition| match answer.find_partition(&topic, partition)?.offset() {
                Offset::Offset(next) => Some(next),
                _ => None,
            };
            Ok((0..partitions).map(offset).collect())
        })
        .await?
    }

    /// The end of each partition: the offset that its next record gets.
    ///
    /// # Errors
    /// When there is no such topic, or the broker does not answer within 30 s.
    pub async fn end_offsets(&self, topic: &str) -> Result<Vec<i64>> {
        Ok(self.bounds(topic).await?.into_iter().map(|(_, end)| end).collect())
    }

    /// All records from the beginning to the end offsets of now, by partition and offset, without a group.
    ///
    /// # Errors
    /// When the broker does not deliver for 30 s, or a record has a header whose key is not UTF-8.
    pub async fn read_all(&self, topic: &str) -> Result<Vec<ReadRecord>> {
        let bounds = self.bounds(topic).await?;
        let (client, topic) = (self.clone(), topic.to_owned());
        spawn_blocking(move || records::read(&client.consumer("reads-without-a-group")?, &topic, &bounds)).await?
    }

    /// How many offsets the group has still before it, over all partitions.
    ///
    /// # Errors
    /// When there is no such topic, or the broker does not answer within 30 s.
    pub async fn lag(&self, group: &str, topic: &str) -> Result<i64> {
        let bounds = self.bounds(topic).await?;
        let committed = self.committed(group, topic, i32::try_from(bounds.len())?).await?;
        Ok(bounds.iter().zip(committed).map(|((begin, end), next)| end - next.unwrap_or(*begin)).sum())
    }

    /// Sets the offsets of a group without members to the beginning of each partition. Members that were killed count
    /// until their session ends: that is waited for.
    ///
    /// # Errors
    /// When the group still has members after 30 s, or the broker does not answer.
    pub async fn reset_to_earliest(&self, group: &str, topic: &str) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        for (partition, (begin, _)) in (0..).zip(self.bounds(topic).await?) {
            offsets.add_partition_offset(topic, partition, Offset::Offset(begin))?;
        }
        let (client, group) = (self.clone(), group.to_owned());
        let reset = spawn_blocking(move || {
            let consumer = client.consumer(&group)?;
            let until = std::time::Instant::now() + LIMIT;
            loop {
                match consumer.commit(&offsets, CommitMode::Sync) {
                    Err(_) if std::time::Instant::now() < until => std::thread::sleep(Duration::from_millis(100)),
                    outcome => return outcome.with_context(|| format!("the group {group} takes no offsets")),
                }
            }
        });
        reset.await?
    }

    /// Beginning and end of each partition.
    async fn bounds(&self, topic: &str) -> Result<Vec<(i64, i64)>> {
        let (producer, topic) = (self.producer.clone(), topic.to_owned());
        spawn_blocking(move || {
            let client = producer.client();
            let metadata = client.fetch_metadata(Some(&topic), LIMIT)?;
            let found = metadata.topics().first().filter(|found| found.error().is_none());
            let partitions = found.map_or(0, |found| found.partitions().len());
            ensure!(partitions > 0, "there is no topic {topic}");
            let bounds = |partition| Ok(client.fetch_watermarks(&topic, partition, LIMIT)?);
            (0..i32::try_from(partitions)?).map(bounds).collect()
        })
        .await?
    }

    fn consumer(&self, group: &str) -> Result<BaseConsumer> {
        let mut config = config(&self.brokers);
        config.set("group.id", group).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        config.create().context("cannot make a Kafka consumer")
    }

    pub(super) fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        config(&self.brokers).create().context("cannot make a Kafka admin client")
    }
}

pub(super) fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

pub(super) fn admin_options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT))
}

/// The outcome of an order to the broker that was about one topic.
pub(super) fn one(outcome: Result<Vec<TopicResult>, KafkaError>) -> Result<()> {
    let first = outcome?.pop().context("the broker did not say")?;
    first.map(drop).map_err(|(_, code)| code.into())
}

async fn acknowledged(delivery: DeliveryFuture) -> Result<()> {
    let outcome = timeout(LIMIT, delivery).await.context("no acknowledgement within 30 s")?;
    outcome?.map(drop).map_err(|(error, _)| error.into())
}
