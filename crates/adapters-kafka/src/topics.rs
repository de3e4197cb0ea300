//! Checks the topics of a consumer group and creates those that hold its copies. The source is never created, and no
//! existing topic is changed.

use std::time::Duration;

use core_delivery::ports::BoxError;
use core_delivery::record::Topic;
use tracing::warn;

use crate::cluster::Cluster;
use crate::fitness::TopicFacts;
use crate::names::{check_topic, dead_letter_topic, retry_topic};
use crate::settings::{KafkaSettings, SettingsError};

/// What the headers of a copy may add to a record.
const HEADER_BYTES: usize = core_delivery::headers::MAX_HEADER_GROWTH;

/// The topics of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPlan {
    /// What is consumed.
    pub source: Topic,
    /// The retry tiers, in their order.
    pub retries: Vec<Topic>,
    /// The dead letters.
    pub dead_letter: Topic,
    /// How long copies must be kept at least. [`new`](Self::new) says 7 days, which is the broker's default.
    pub kept_for: Duration,
}

impl TopicPlan {
    /// The plan of a group with these delays.
    pub fn new(source: &Topic, group: &str, delays: &[Duration]) -> Self {
        Self {
            source: source.clone(),
            retries: delays.iter().map(|delay| retry_topic(source, group, *delay)).collect(),
            dead_letter: dead_letter_topic(source, group),
            kept_for: Duration::from_secs(7 * 86_400),
        }
    }

    /// The topics that hold copies: retries, then dead letters.
    pub fn copies(&self) -> impl Iterator<Item = &Topic> {
        self.retries.iter().chain([&self.dead_letter])
    }
}

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReport {
    /// How many partitions the source has.
    pub partitions: usize,
    /// The source, the retries, the dead letters. Empty if this principal may not read the topics' configuration; then
    /// nothing was checked beyond that the topics exist.
    pub topics: Vec<TopicFacts>,
    /// What this call created.
    pub created: Vec<Topic>,
}

impl TopicReport {
    /// The largest copy, in bytes: the source's `max.message.bytes` and 64 KiB for headers. For the publisher's
    /// `message_bytes_max`.
    pub fn copy_bytes_max(&self) -> Option<usize> {
        self.topics.first().map(|source| source.message_bytes.saturating_add(HEADER_BYTES))
    }
}

/// Why the topics are not as they must be.
#[derive(Debug, thiserror::Error)]
pub enum TopicsError {
    /// The settings or a name are refused.
    #[error("the Kafka settings are refused")]
    Settings(#[from] SettingsError),
    /// No broker answered.
    #[error("no Kafka broker can be reached at {brokers} ({reason})")]
    Unreachable {
        /// The bootstrap servers.
        brokers: String,
        /// What the client said last.
        reason: String,
    },
    /// There is nothing to consume.
    #[error("the topic `{topic}` does not exist: create it, or name another one; for example: {command}")]
    SourceMissing {
        /// The source.
        topic: Topic,
        /// A command that creates it.
        command: String,
    },
    /// Copies have no place to go, and creating it is switched off.
    #[error("topics are missing; create them, or switch their creation on:{}", listed(.0))]
    Missing(Vec<MissingTopic>),
    /// Topics exist that would lose copies.
    #[error("topics are not fit to hold the only copy of a record:{}", .0.concat())]
    Unfit(Vec<String>),
    /// This principal may not do what is needed.
    #[error("the broker denies this principal to {action} `{topic}`: grant it, or let somebody else do it")]
    Denied {
        /// The topic.
        topic: Topic,
        /// What was denied.
        action: &'static str,
    },
    /// A topic was not created.
    #[error("the topic `{topic}` could not be created: {reason}; {command}")]
    NotCreated {
        /// The topic.
        topic: Topic,
        /// The broker's reason.
        reason: String,
        /// A command that creates it.
        command: String,
    },
    /// Topics were created and do not show up.
    #[error("new topics do not show up within {limit:?}: {names}")]
    NotVisible {
        /// How long was waited.
        limit: Duration,
        /// Their names.
        names: String,
    },
    /// Anything else that the client or the broker refuses.
    #[error("Kafka does not {action}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The client's error.
        #[source]
        source: BoxError,
    },
}

/// A topic that must be created, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTopic {
    /// Its name.
    pub topic: Topic,
    /// The command that creates it as it must be.
    pub command: String,
}

fn listed(missing: &[MissingTopic]) -> String {
    missing.iter().map(|missing| format!("\n  {}: {}", missing.topic, missing.command)).collect()
}

/// Checks that the topics of the plan exist. With `create`, missing retry and dead letter topics are made: as many
/// partitions as the source, the broker's default replication, `max.message.bytes` of the source + 64 KiB, no
/// compaction. Others may do the same at the same time. A topic for copies holds the only copy of an event, so one
/// that would lose it (compaction, too short or too small a retention, no room for headers, one replica in sync) is
/// refused, whoever made it. Needs a Tokio runtime; takes at most about a minute. Dropping
/// the future leaves what was created.
///
/// # Errors
/// Tells an unreachable broker from a topic that is missing, denied or refused; what is missing is listed whole.
pub async fn ensure_topics(
    settings: &KafkaSettings,
    plan: &TopicPlan,
    create: bool,
) -> Result<TopicReport, TopicsError> {
    settings.validate()?;
    check_topic(&plan.source)?;
    plan.copies().try_for_each(check_topic)?;
    let cluster = Cluster::new(settings)?;
    let partitions = source_partitions(&cluster, settings, plan).await?;
    let absent = absent(&cluster, plan).await?;
    let source = match cluster.facts(&plan.source).await {
        Ok(source) => source,
        Err(TopicsError::Denied { .. }) if absent.is_empty() => {
            warn!(topic = %plan.source, "the topics' configuration may not be read and is not checked");
            return Ok(TopicReport { partitions, topics: Vec::new(), created: Vec::new() });
        }
        Err(error) => return Err(error),
    };
    let shape = Shape { partitions, message_bytes: source.message_bytes.saturating_add(HEADER_BYTES) };
    if !absent.is_empty() && !create {
        return Err(shape.missing(&settings.brokers, absent));
    }
    let created = cluster.create(&absent, &shape).await?;
    cluster.wait_for(&absent).await?;

    let mut topics = vec![source];
    for copy in plan.copies() {
        topics.push(cluster.facts(copy).await?);
    }
    let faults_of = |copy: &TopicFacts| {
        let faults = copy.faults(shape.message_bytes, plan.kept_for);
        faults.into_iter().map(|fault| format!("\n  {}: {fault}", copy.topic)).collect::<Vec<_>>()
    };
    let faults: Vec<String> = topics[1..].iter().flat_map(faults_of).collect();
    if faults.is_empty() { Ok(TopicReport { partitions, topics, created }) } else { Err(TopicsError::Unfit(faults)) }
}

/// Checks that the topics of the plan exist, and nothing else, for a broker that does not tell how they are configured
/// (the embedded one does not). Nothing then notices a topic that would lose copies. Needs a Tokio runtime.
///
/// # Errors
/// As those of [`ensure_topics`].
pub async fn find_topics(settings: &KafkaSettings, plan: &TopicPlan) -> Result<TopicReport, TopicsError> {
    settings.validate()?;
    check_topic(&plan.source)?;
    plan.copies().try_for_each(check_topic)?;
    let cluster = Cluster::new(settings)?;
    let partitions = source_partitions(&cluster, settings, plan).await?;
    let absent = absent(&cluster, plan).await?;
    if !absent.is_empty() {
        let shape = Shape { partitions, message_bytes: settings.message_bytes_max };
        return Err(shape.missing(&settings.brokers, absent));
    }
    warn!("how the topics are configured is not checked, as configured");
    Ok(TopicReport { partitions, topics: Vec::new(), created: Vec::new() })
}

async fn source_partitions(
    cluster: &Cluster,
    settings: &KafkaSettings,
    plan: &TopicPlan,
) -> Result<usize, TopicsError> {
    cluster.partitions(&plan.source).await?.ok_or_else(|| {
        let command = command(&settings.brokers, &plan.source, 6, "");
        TopicsError::SourceMissing { topic: plan.source.clone(), command }
    })
}

async fn absent(cluster: &Cluster, plan: &TopicPlan) -> Result<Vec<Topic>, TopicsError> {
    let mut absent = Vec::new();
    for copy in plan.copies() {
        if cluster.partitions(copy).await?.is_none() {
            absent.push(copy.clone());
        }
    }
    Ok(absent)
}

/// What a topic for copies is like.
pub(crate) struct Shape {
    pub(crate) partitions: usize,
    pub(crate) message_bytes: usize,
}

impl Shape {
    fn missing(&self, brokers: &str, absent: Vec<Topic>) -> TopicsError {
        let missing = |topic: Topic| MissingTopic { command: self.command(brokers, &topic), topic };
        TopicsError::Missing(absent.into_iter().map(missing).collect())
    }

    pub(crate) fn command(&self, brokers: &str, topic: &Topic) -> String {
        let config = format!(" --config cleanup.policy=delete --config max.message.bytes={}", self.message_bytes);
        command(brokers, topic, self.partitions, &config)
    }
}

fn command(brokers: &str, topic: &Topic, partitions: usize, config: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {partitions}{config}")
}
