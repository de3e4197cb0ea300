//! What an operator's commands ask about groups and lanes. It joins no group and changes nothing.

use std::time::Duration;

use core_delivery::ports::{Arrival, BoxError};
use core_delivery::record::{LaneId, Topic};
use rdkafka::error::RDKafkaErrorCode;

use crate::lookup::{Lookup, LookupError};
use crate::names::check_topic;
use crate::settings::{KafkaSettings, SettingsError};

/// How long the brokers may take to answer.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// A lane and what the broker knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFacts {
    /// The lane.
    pub lane: LaneId,
    /// The same that the stream tells when the lane is assigned.
    pub arrival: Arrival,
}

/// How many members the group has now; none if there is no such group. A process that died counts until its session
/// timeout. Members of a group of the `consumer` protocol, which this crate never joins, are not counted. Needs a Tokio
/// runtime; takes at most about 20 s. Cancel safe.
///
/// # Errors
/// When the settings are refused, or the group's coordinator does not answer: then the number is not known, and is not
/// zero.
pub async fn group_members(settings: &KafkaSettings, group: &str) -> Result<usize, InspectError> {
    settings.validate()?;
    check_group(group)?;
    let (brokers, group) = (settings.brokers.clone(), group.to_owned());
    let settings = settings.clone();
    let asked = blocking(move || Lookup::new(&settings, &group, ANSWER_LIMIT)?.members());
    asked.await?.map_err(|error| InspectError::unknown(&brokers, error))
}

/// Every partition of the topics, in the order of the topics and partitions, with what the stream would tell about it.
/// Needs a Tokio runtime; takes at most about 20 s. Cancel safe.
///
/// # Errors
/// When the settings are refused, a topic does not exist, or not everything can be learned: there are no partial
/// answers.
pub async fn lane_facts(
    settings: &KafkaSettings,
    group: &str,
    topics: &[Topic],
) -> Result<Vec<LaneFacts>, InspectError> {
    settings.validate()?;
    check_group(group)?;
    topics.iter().try_for_each(check_topic)?;
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let (brokers, group, topics) = (settings.brokers.clone(), group.to_owned(), topics.to_vec());
    let settings = settings.clone();
    let asked = blocking(move || {
        let lookup = Lookup::new(&settings, &group, ANSWER_LIMIT);
        let unknown = |error| InspectError::unknown(&settings.brokers, error);
        let lookup = lookup.map_err(unknown)?;
        let lanes = lanes_of(&lookup, &brokers, &topics)?;
        let mut findings = lookup.arrivals(&lanes);
        if let Some(trouble) = findings.trouble {
            return Err(unknown(trouble));
        }
        let facts = lanes.into_iter().map(|lane| {
            let arrival = findings.arrivals.remove(&lane);
            let missing = || LookupError::new(format!("`{lane}` is not known"), RDKafkaErrorCode::BadMessage);
            arrival.ok_or_else(|| unknown(missing())).map(|arrival| LaneFacts { lane: lane.clone(), arrival })
        });
        facts.collect()
    });
    asked.await?
}

/// The lanes of topics that exist, in order.
pub(crate) fn lanes_of(lookup: &Lookup, brokers: &str, topics: &[Topic]) -> Result<Vec<LaneId>, InspectError> {
    let described = lookup.topics(topics).map_err(|error| InspectError::unknown(brokers, error))?;
    let mut lanes = Vec::new();
    for topic in topics {
        let found = described.iter().find(|(described, _)| described == topic).map(|(_, description)| description);
        match found {
            Some(Ok(description)) => {
                let mut partitions: Vec<i32> = description.leaders.keys().copied().collect();
                partitions.sort_unstable();
                lanes.extend(partitions.into_iter().map(|partition| LaneId { topic: topic.clone(), partition }));
            }
            None | Some(Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)) => {
                return Err(InspectError::NoTopic { topic: topic.clone() });
            }
            Some(Err(code)) => {
                let error = LookupError::new(format!("the topic `{topic}` is not described"), *code);
                return Err(InspectError::unknown(brokers, error));
            }
        }
    }
    Ok(lanes)
}

/// Runs what blocks on a thread for it.
async fn blocking<T: Send + 'static>(asking: impl FnOnce() -> T + Send + 'static) -> Result<T, InspectError> {
    tokio::task::spawn_blocking(asking).await.map_err(|error| InspectError::Ended { source: error.into() })
}

fn check_group(group: &str) -> Result<(), SettingsError> {
    if group.is_empty() || group.contains('\0') {
        return Err(SettingsError::Invalid { setting: "group", reason: "must be a name" });
    }
    Ok(())
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The settings or a name are refused.
    #[error("the Kafka settings are refused")]
    Settings(#[from] SettingsError),
    /// There is nothing to look at.
    #[error("the topic `{topic}` does not exist")]
    NoTopic {
        /// Its name.
        topic: Topic,
    },
    /// The brokers did not tell, or not all of it. The answer is not known; ask again.
    #[error("the Kafka brokers at {brokers} do not tell: {reason}")]
    Unknown {
        /// The bootstrap servers.
        brokers: String,
        /// What is not known, and what the client said last.
        reason: String,
    },
    /// The task that asked did not come to its end.
    #[error("the task that asks Kafka was ended")]
    Ended {
        /// The runtime's error.
        #[source]
        source: BoxError,
    },
}

impl InspectError {
    pub(crate) fn unknown(brokers: &str, error: LookupError) -> Self {
        Self::Unknown { brokers: brokers.to_owned(), reason: error.text }
    }
}
