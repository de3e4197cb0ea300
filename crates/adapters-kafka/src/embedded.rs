//! A broker in this process, for trying things out: librdkafka's mock cluster, which speaks Kafka on a port of
//! 127.0.0.1. It keeps everything in memory, at most 5 MiB a partition, and is no place for anything that matters.

use core_delivery::record::Topic;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer};

use crate::names::check_topic;
use crate::native;
use crate::settings::SettingsError;

/// The broker. It ends when it is dropped, and with the process.
pub struct EmbeddedBroker {
    /// Owns the cluster, and sends nothing.
    owner: BaseProducer,
    brokers: String,
}

impl EmbeddedBroker {
    /// What a partition holds; older records go when it is full.
    pub const PARTITION_BYTES: usize = 5 * 1024 * 1024;

    /// Starts it on a free port.
    ///
    /// # Errors
    /// When the system gives it no port or no thread.
    pub fn start() -> Result<Self, EmbeddedBrokerError> {
        let failed = |error: KafkaError| EmbeddedBrokerError::Start { reason: error.to_string() };
        let owner: BaseProducer = ClientConfig::new().set("test.mock.num.brokers", "1").create().map_err(failed)?;
        native::form_groups_at_once(owner.client());
        let cluster = owner.client().mock_cluster();
        let brokers = cluster.map(|cluster| cluster.bootstrap_servers());
        let brokers =
            brokers.ok_or_else(|| EmbeddedBrokerError::Start { reason: "the client has no cluster".to_owned() })?;
        Ok(Self { owner, brokers })
    }

    /// The bootstrap servers, `host:port`; any process of this machine can use them.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Creates a topic. One that exists stays as it is.
    ///
    /// # Errors
    /// When the name is not a topic's, or the number of partitions is 0.
    pub fn create_topic(&self, topic: &Topic, partitions: u16) -> Result<(), EmbeddedBrokerError> {
        check_topic(topic)?;
        let refused = |reason: String| EmbeddedBrokerError::Topic { topic: topic.clone(), reason };
        let cluster = self.owner.client().mock_cluster();
        let cluster = cluster.ok_or_else(|| refused("the client has no cluster".to_owned()))?;
        match cluster.create_topic(topic.as_str(), i32::from(partitions), 1) {
            Ok(()) => Ok(()),
            Err(KafkaError::MockCluster(RDKafkaErrorCode::TopicAlreadyExists)) => Ok(()),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}

impl std::fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedBroker").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

/// Why the embedded broker does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedBrokerError {
    /// It does not start.
    #[error("the broker in this process does not start: {reason}")]
    Start {
        /// What the client library says.
        reason: String,
    },
    /// A topic's name is none.
    #[error(transparent)]
    Name(#[from] SettingsError),
    /// A topic is not created.
    #[error("the topic `{topic}` is not created: {reason}")]
    Topic {
        /// The topic.
        topic: Topic,
        /// What the client library says.
        reason: String,
    },
}
