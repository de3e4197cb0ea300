//! What the brokers tell about topics, and the request to create some. It knows no plan and no rule.

use std::sync::Arc;
use std::time::{Duration, Instant};

use core_delivery::ports::BoxError;
use core_delivery::record::Topic;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tracing::info;

use crate::context::Callbacks;
use crate::fitness::TopicFacts;
use crate::settings::KafkaSettings;
use crate::topics::{Shape, TopicsError};

/// How long one request to the brokers may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long a new topic may take until the brokers show it.
const VISIBLE_LIMIT: Duration = Duration::from_secs(30);

/// A connection for questions.
pub(crate) struct Cluster {
    brokers: String,
    callbacks: Callbacks,
    /// Asks for metadata. The admin client's own events are served by nobody, so only this one learns the reasons.
    observer: Arc<BaseConsumer<Callbacks>>,
    admin: AdminClient<Callbacks>,
}

impl Cluster {
    pub(crate) fn new(settings: &KafkaSettings) -> Result<Self, TopicsError> {
        let refused = |error: rdkafka::error::KafkaError| TopicsError::Refused {
            action: "make a client of the settings",
            source: error.into(),
        };
        let callbacks = Callbacks::default();
        let observer = settings.onlooker().create_with_context(callbacks.clone()).map_err(refused)?;
        let admin = settings.admin().create_with_context(callbacks.clone()).map_err(refused)?;
        Ok(Self { brokers: settings.brokers.clone(), callbacks, observer: Arc::new(observer), admin })
    }

    /// How many partitions a topic has; `None` if there is no such topic.
    pub(crate) async fn partitions(&self, topic: &Topic) -> Result<Option<usize>, TopicsError> {
        Ok(self.layout(topic).await?.map(|layout| layout.partitions))
    }

    /// All that is known about a topic that exists.
    pub(crate) async fn facts(&self, topic: &Topic) -> Result<TopicFacts, TopicsError> {
        let gone = || TopicsError::Refused { action: ACTION, source: "the topic has just gone".into() };
        let layout = self.layout(topic).await?.ok_or_else(gone)?;
        let config = self.config(topic).await?;
        let limit = |name| Ok::<_, TopicsError>(u64::try_from(number(&config, name)?).ok());
        let size = |name| Ok::<_, TopicsError>(usize::try_from(number(&config, name)?).unwrap_or(usize::MAX));
        Ok(TopicFacts {
            topic: topic.clone(),
            partitions: layout.partitions,
            replicas: layout.replicas,
            message_bytes: size("max.message.bytes")?,
            retention: limit("retention.ms")?.map(Duration::from_millis),
            retention_bytes: limit("retention.bytes")?,
            is_compacted: text(&config, "cleanup.policy")?.contains("compact"),
            in_sync_min: size("min.insync.replicas")?,
        })
    }

    async fn layout(&self, topic: &Topic) -> Result<Option<Layout>, TopicsError> {
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
                None => Ok(Layout {
                    partitions: topic.partitions().len(),
                    replicas: topic.partitions().iter().map(|p| p.replicas().len()).min().unwrap_or(0),
                }),
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
            // It is being created and has no leader yet.
            Some(Err(RDKafkaErrorCode::LeaderNotAvailable)) | Some(Ok(Layout { partitions: 0, .. })) => Ok(None),
            Some(Ok(layout)) => Ok(Some(layout)),
            Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                Err(TopicsError::Denied { topic: topic.clone(), action: "describe" })
            }
            Some(Err(code)) => Err(TopicsError::Refused { action: "describe a topic", source: code.into() }),
        }
    }

    async fn config(&self, topic: &Topic) -> Result<ConfigResource, TopicsError> {
        let refused = |source: BoxError| TopicsError::Refused { action: ACTION, source };
        let asked = [ResourceSpecifier::Topic(topic.as_str())];
        let answers = self.admin.describe_configs(&asked, &options()).await;
        match answers.map_err(|error| refused(error.into()))?.into_iter().next() {
            Some(Ok(config)) => Ok(config),
            Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                Err(TopicsError::Denied { topic: topic.clone(), action: "describe the configuration of" })
            }
            Some(Err(code)) => Err(refused(code.into())),
            None => Err(refused("the answer is empty".into())),
        }
    }

    /// Creates topics and returns those that no other process created before.
    pub(crate) async fn create(&self, topics: &[Topic], shape: &Shape) -> Result<Vec<Topic>, TopicsError> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
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
        let mut created = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(topic) => {
                    info!(topic, partitions, "topic created");
                    created.push(Topic::new(topic));
                }
                Err((topic, RDKafkaErrorCode::TopicAlreadyExists)) => info!(topic, "topic created by another process"),
                Err((name, code)) => return Err(self.not_created(Topic::new(name), code, shape)),
            }
        }
        Ok(created)
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

    pub(crate) async fn wait_for(&self, topics: &[Topic]) -> Result<(), TopicsError> {
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

struct Layout {
    partitions: usize,
    replicas: usize,
}

/// What was tried when an answer lacks something.
const ACTION: &str = "describe the configuration of a topic";

fn text<'a>(config: &'a ConfigResource, name: &str) -> Result<&'a str, TopicsError> {
    let value = config.get(name).and_then(|entry| entry.value.as_deref());
    value.ok_or_else(|| TopicsError::Refused { action: ACTION, source: format!("{name} is missing").into() })
}

fn number(config: &ConfigResource, name: &str) -> Result<i64, TopicsError> {
    text(config, name)?.parse().map_err(|error: std::num::ParseIntError| TopicsError::Refused {
        action: ACTION,
        source: format!("{name}: {error}").into(),
    })
}

/// The reason of a failure arrives as an event, a little later.
pub(crate) fn hear_the_reason(observer: &BaseConsumer<Callbacks>) {
    let deadline = Instant::now() + Duration::from_millis(500);
    while observer.context().health.trouble().is_none() && Instant::now() < deadline {
        drop(observer.poll(Duration::from_millis(50)));
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_LIMIT)).operation_timeout(Some(REQUEST_LIMIT))
}
