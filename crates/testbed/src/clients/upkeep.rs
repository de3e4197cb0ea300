//! What an operator or a producer does to a broker while a trial runs: partitions added, settings of a topic changed,
//! records written one by one without waiting. No group is joined.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use rdkafka::{
    admin::{AlterConfig, ConfigSource, NewPartitions, ResourceSpecifier},
    producer::FutureRecord,
};

use super::kafka::{KafkaClient, admin_options, one};

/// What was set for a topic itself, by name.
pub type TopicSettings = BTreeMap<String, String>;

impl KafkaClient {
    /// Makes a topic have this many partitions.
    ///
    /// # Errors
    /// When it has as many already, or the broker does not answer within 30 s.
    pub async fn add_partitions(&self, topic: &str, total: usize) -> Result<()> {
        let outcome = self.admin()?.create_partitions([&NewPartitions::new(topic, total)], &admin_options()).await;
        one(outcome).with_context(|| format!("cannot add partitions to {topic}"))
    }

    /// What is set for the topic itself, without the broker's defaults.
    ///
    /// # Errors
    /// When the broker does not answer within 30 s.
    pub async fn topic_settings(&self, topic: &str) -> Result<TopicSettings> {
        let asked = [ResourceSpecifier::Topic(topic)];
        let mut answers = self.admin()?.describe_configs(&asked, &admin_options()).await?;
        let answer = answers.pop().context("the broker did not say")??;
        let own = answer.entries.into_iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
        Ok(own.filter_map(|entry| Some((entry.name, entry.value?))).collect())
    }

    /// Sets exactly this for the topic; everything else is the broker's default from then on.
    ///
    /// # Errors
    /// When the broker refuses it or does not answer within 30 s.
    pub async fn set_topic(&self, topic: &str, settings: &TopicSettings) -> Result<()> {
        let wanted = AlterConfig::new(ResourceSpecifier::Topic(topic));
        let wanted = settings.iter().fold(wanted, |wanted, (name, value)| wanted.set(name, value));
        let mut answers = self.admin()?.alter_configs([&wanted], &admin_options()).await?;
        match answers.pop().context("the broker did not say")? {
            Ok(_) => Ok(()),
            Err((_, code)) => bail!("the settings of {topic} were refused: {code}"),
        }
    }

    /// Queues one record for the partition of its key; no payload is a tombstone. Records queued one after the other are
    /// written in that order. The future is its acknowledgement: partition and offset.
    ///
    /// # Errors
    /// When the queue is full; the future's: when the broker has not acknowledged it after some minutes.
    pub fn enqueue(
        &self,
        topic: &str,
        key: &[u8],
        payload: Option<&[u8]>,
    ) -> Result<impl Future<Output = Result<(i32, i64)>> + Send + use<>> {
        let record = FutureRecord::<[u8], [u8]> { payload, ..FutureRecord::to(topic).key(key) };
        let delivery = self.producer.send_result(record).map_err(|(error, _)| error)?;
        Ok(async move {
            let delivered = delivery.await?.map_err(|(error, _)| error)?;
            Ok((delivered.partition, delivered.offset))
        })
    }
}
