//! Checks the topics of a consumer group and creates those that hold its copies. The source is never created, and no
//! existing topic is changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use core_delivery::ports::BoxError;
use core_delivery::record::Topic;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tracing::{info, warn};

use crate::context::Callbacks;
use crate::names::{check_topic, dead_letter_topic, retry_topic};
use crate::settings::{KafkaSettings, SettingsError};

/// How long one request to the brokers may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long a new topic may take until all brokers asked show it.
const VISIBLE_LIMIT: Duration = Duration::from_secs(30);
/// What the headers of a copy may add to a record.
const HEADER_BYTES: usize = 64 << 10;

/// The topics of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPlan {
    /// What is consumed.
    pub source: Topic,
    /// The retry tiers, in their order.
    pub retries: Vec<Topic>,
    /// The dead letters.
    pub dead_letter: Topic,
}

impl TopicPlan {
    /// The plan of a group with these delays.
    pub fn new(source: &Topic, group: &str, delays: &[Duration]) -> Self {
        Self {
            source: source.clone(),
            retries: delays.iter().map(|delay| retry_topic(source, group, *delay)).collect(),
            dead_letter: dead_letter_topic(source, group),
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
    /// The source's `max.message.bytes`. `None` if this principal may not read it and it was not needed.
    pub source_message_bytes: Option<usize>,
    /// What this call created.
    pub created: Vec<Topic>,
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
/// compaction. Others may do the same at the same time. Needs a Tokio runtime; takes at most about a minute. Dropping
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
    let Some(partitions) = cluster.partitions(&plan.source).await? else {
        let command = command(&settings.brokers, &plan.source, 6, "");
        return Err(TopicsError::SourceMissing { topic: plan.source.clone(), command });
    };
    let mut absent = Vec::new();
    for copy in plan.copies() {
        if cluster.partitions(copy).await?.is_none() {
            absent.push(copy.clone());
        }
    }
    let source_message_bytes = match cluster.message_bytes(&plan.source).await {
        Ok(bytes) => Some(bytes),
        Err(error) if absent.is_empty() => {
            warn!(%error, "the largest record of the source topic is not known");
            None
        }
        Err(error) => return Err(error),
    };
    if let (Some(bytes), false) = (source_message_bytes, absent.is_empty()) {
        let shape = Shape { partitions, message_bytes: bytes.saturating_add(HEADER_BYTES) };
        if !create {
            let missing = |topic: Topic| MissingTopic { command: shape.command(&settings.brokers, &topic), topic };
            return Err(TopicsError::Missing(absent.into_iter().map(missing).collect()));
        }
        cluster.create(&absent, &shape).await?;
        cluster.wait_for(&absent).await?;
    }
    Ok(TopicReport { partitions, source_message_bytes, created: absent })
}

/// What a topic for copies is like.
struct Shape {
    partitions: usize,
    message_bytes: usize,
}

impl Shape {
    fn command(&self, brokers: &str, topic: &Topic) -> String {
        let config = format!(" --config cleanup.policy=delete --config max.message.bytes={}", self.message_bytes);
        command(brokers, topic, self.partitions, &config)
    }
}

fn command(brokers: &str, topic: &Topic, partitions: usize, config: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {partitions}{config}")
}

struct Cluster {
    brokers: String,
    callbacks: Callbacks,
    /// Asks for metadata. The admin client's own events are served by nobody, so only this one learns the reasons.
    observer: Arc<BaseConsumer<Callbacks>>,
    admin: AdminClient<Callbacks>,
}

impl Cluster {
    fn new(settings: &KafkaSettings) -> Result<Self, TopicsError> {
        let refused = |error: rdkafka::error::KafkaError| TopicsError::Refused {
            action: "make a client of the settings",
            source: error.into(),
        };
        let callbacks = Callbacks::default();
        let observer = settings.admin().create_with_context(callbacks.clone()).map_err(refused)?;
        let admin = settings.admin().create_with_context(callbacks.clone()).map_err(refused)?;
        Ok(Self { brokers: settings.brokers.clone(), callbacks, observer: Arc::new(observer), admin })
    }

    /// How many partitions a topic has; `None` if there is no such topic.
    async fn partitions(&self, topic: &Topic) -> Result<Option<usize>, TopicsError> {
        let (observer, asked) = (Arc::clone(&self.observer), topic.clone());
        let answer = tokio::task::spawn_blocking(move || {
            let metadata = observer.fetch_metadata(Some(asked.as_str()), REQUEST_LIMIT);
            if metadata.is_err() {
                hear_the_reason(&observer);
            }
            let metadata = metadata?;
            let found = metadata.topics().iter().find(|found| found.name() == asked.as_str());
            // The list of partitions may be looked at only without an error.
            Ok::<_, rdkafka::error::KafkaError>(found.map(|topic| match topic.error() {
                Some(error) => Err(RDKafkaErrorCode::from(error)),
                None => Ok(topic.partitions().len()),
            }))
        });
        let answer = answer.await.map_err(|error| TopicsError::Refused {
            action: "answer, because the task that asked was ended",
            source: error.into(),
        })?;
        let found = answer.map_err(|error| TopicsError::Unreachable {
            brokers: self.brokers.clone(),
            reason: self.callbacks.health.last_error().unwrap_or_else(|| error.to_string()),
        })?;
        match found {
            None | Some(Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)) => Ok(None),
            // Being created: it has no leader yet.
            Some(Err(RDKafkaErrorCode::LeaderNotAvailable)) | Some(Ok(0)) => Ok(None),
            Some(Ok(count)) => Ok(Some(count)),
            Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                Err(TopicsError::Denied { topic: topic.clone(), action: "describe" })
            }
            Some(Err(code)) => Err(TopicsError::Refused { action: "describe a topic", source: code.into() }),
        }
    }

    async fn message_bytes(&self, topic: &Topic) -> Result<usize, TopicsError> {
        let action = "tell a topic's max.message.bytes";
        let asked = [ResourceSpecifier::Topic(topic.as_str())];
        let answers = self.admin.describe_configs(&asked, &options()).await;
        let answers = answers.map_err(|error| TopicsError::Refused { action, source: error.into() })?;
        match answers.into_iter().next() {
            Some(Ok(config)) => {
                let value = config.get("max.message.bytes").and_then(|entry| entry.value.as_deref());
                let bytes = value.and_then(|value| value.parse().ok());
                bytes.ok_or_else(|| TopicsError::Refused { action, source: "the answer lacks it".into() })
            }
            Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                Err(TopicsError::Denied { topic: topic.clone(), action: "describe the configuration of" })
            }
            Some(Err(code)) => Err(TopicsError::Refused { action, source: code.into() }),
            None => Err(TopicsError::Refused { action, source: "the answer is empty".into() }),
        }
    }

    async fn create(&self, topics: &[Topic], shape: &Shape) -> Result<(), TopicsError> {
        let partitions = i32::try_from(shape.partitions).unwrap_or(i32::MAX);
        let message_bytes = shape.message_bytes.to_string();
        let wanted: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| {
                // -1 is the broker's default.
                NewTopic::new(topic.as_str(), partitions, TopicReplication::Fixed(-1))
                    .set("cleanup.policy", "delete")
                    .set("max.message.bytes", &message_bytes)
            })
            .collect();
        let outcomes = self.admin.create_topics(&wanted, &options()).await;
        let outcomes =
            outcomes.map_err(|error| TopicsError::Refused { action: "create topics", source: error.into() })?;
        for outcome in outcomes {
            match outcome {
                Ok(topic) => info!(topic, partitions, "topic created"),
                Err((topic, RDKafkaErrorCode::TopicAlreadyExists)) => info!(topic, "topic created by another process"),
                Err((name, code)) => return Err(self.not_created(Topic::new(name), code, shape)),
            }
        }
        Ok(())
    }

    fn not_created(&self, topic: Topic, code: RDKafkaErrorCode, shape: &Shape) -> TopicsError {
        match code {
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
                TopicsError::Denied { topic, action: "create" }
            }
            _ => {
                let command = shape.command(&self.brokers, &topic);
                TopicsError::NotCreated { topic, reason: code.to_string(), command }
            }
        }
    }

    async fn wait_for(&self, topics: &[Topic]) -> Result<(), TopicsError> {
        let deadline = Instant::now() + VISIBLE_LIMIT;
        loop {
            let mut hidden = Vec::new();
            for topic in topics {
                if self.partitions(topic).await?.is_none() {
                    hidden.push(topic.as_str());
                }
            }
            if hidden.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(TopicsError::NotVisible { limit: VISIBLE_LIMIT, names: hidden.join(", ") });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The reason of a failure arrives as an event, a little later.
fn hear_the_reason(observer: &BaseConsumer<Callbacks>) {
    let deadline = Instant::now() + Duration::from_millis(500);
    while observer.context().health.trouble().is_none() && Instant::now() < deadline {
        drop(observer.poll(Duration::from_millis(50)));
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_LIMIT)).operation_timeout(Some(REQUEST_LIMIT))
}
