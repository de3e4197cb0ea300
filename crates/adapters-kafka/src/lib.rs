//! Kafka for the delivery kernel: the record stream of a consumer group, the publisher, and the topics they need.
//! Nothing here may know what a record means, keep a dedup key, or name a database.
//!
//! - [`KafkaStream`] implements `RecordStream`; its control is the `StreamControl` that `start` returns.
//! - [`KafkaPublisher`] implements `Publisher`.
//! - [`ensure_topics`] checks, and creates, what both need; [`find_topics`] only looks whether it is there.
//! - `EmbeddedBroker` (feature `embedded`) is a broker in this process, to try things with.
//! - [`group_members`], [`lane_facts`] and [`read_topic`] look without joining a group, for an operator's commands.

mod settings;

mod membership;

mod stream;

mod poll;

mod rebalance;

mod burst;

mod arriving;

mod lookup;

mod lanes;

mod control;

mod committer;

mod positions;

mod native;

mod failure;

mod context;

mod publisher;

mod partitions;

mod topics;

mod cluster;

mod fitness;

mod inspect;

mod reading;

mod offsets;

mod names;

#[cfg(feature = "embedded")]
mod embedded;

pub use context::{ClientHealth, Trouble};
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedBroker, EmbeddedBrokerError};
pub use fitness::TopicFacts;
pub use inspect::{InspectError, LaneFacts, group_members, lane_facts};
pub use names::{dead_letter_topic, retry_topic};
pub use offsets::{OffsetsError, commit_offsets};
pub use publisher::KafkaPublisher;
pub use reading::read_topic;
pub use settings::{KafkaSettings, SettingsError};
pub use stream::{KafkaError, KafkaStream};
pub use topics::{MissingTopic, TopicPlan, TopicReport, TopicsError, ensure_topics, find_topics};
