//! The check of Kafka: topics, group, producer. It creates nothing and writes nothing.

use adapters_kafka::{
    InspectError, KafkaPublisher, KafkaSettings, LaneFacts, TopicPlan, TopicsError, ensure_topics, group_members,
    lane_facts,
};
use core_delivery::delivery::Topology;
use core_delivery::ports::error_chain;

use super::Item;

/// What the check of Kafka brought.
#[derive(Debug)]
pub struct Checked {
    /// The items.
    pub items: Vec<Item>,
    /// What is known of each lane, if the topics are all there.
    pub lanes: Vec<LaneFacts>,
}

/// Checks what the group reads and writes.
pub async fn check(kafka: &KafkaSettings, topology: &Topology, plan: &TopicPlan, creates_topics: bool) -> Checked {
    let mut items = vec![topics(kafka, plan, creates_topics).await];
    items.push(match KafkaPublisher::new(kafka) {
        Ok(_) => Item::fine("producer", "can be made; nothing was written"),
        Err(error) => Item::finding("producer", error_chain(&error), "correct KAFKA_PROPERTIES"),
    });
    let group = topology.group.as_str();
    items.push(match group_members(kafka, group).await {
        Ok(members) => Item::fine("group", format!("{group} has {members} members")),
        Err(error) => failed("group", &error),
    });
    let lanes = match lane_facts(kafka, group, &topology.consumed()).await {
        Ok(lanes) => lanes,
        // Told with the topics already.
        Err(InspectError::NoTopic { .. }) => Vec::new(),
        Err(error) => {
            items.push(failed("offsets", &error));
            Vec::new()
        }
    };
    Checked { items, lanes }
}

async fn topics(kafka: &KafkaSettings, plan: &TopicPlan, creates_topics: bool) -> Item {
    let name = "topics";
    let error = match ensure_topics(kafka, plan, false).await {
        Ok(report) if report.topics.is_empty() => {
            return Item::fine(name, "are there; their configuration may not be read by this principal");
        }
        Ok(report) => {
            let count = report.topics.len();
            return Item::fine(name, format!("{count} are there and fit, {} partitions each", report.partitions));
        }
        Err(error) => error,
    };
    let what = error_chain(&error);
    match error {
        TopicsError::Missing(_) if creates_topics => Item::finding(
            name,
            what,
            "start the service once, which creates them (KAFKA_CREATE_TOPICS), or create them",
        ),
        TopicsError::Missing(_) => Item::finding(name, what, "create them, or set KAFKA_CREATE_TOPICS=true"),
        TopicsError::SourceMissing { .. } => Item::finding(name, what, "create it, or set KAFKA_TOPIC"),
        TopicsError::Unfit(_) => Item::finding(name, what, "change the topics as said; no topic is changed by us"),
        TopicsError::Denied { .. } => Item::finding(name, what, "grant it to the principal of KAFKA_PROPERTIES"),
        TopicsError::Settings(_) => Item::finding(name, what, "correct KAFKA_PROPERTIES, KAFKA_TOPIC and KAFKA_GROUP"),
        TopicsError::Unreachable { .. } | TopicsError::NotVisible { .. } => {
            Item::unreachable(name, what, "start the brokers, or correct KAFKA_BROKERS and KAFKA_PROPERTIES")
        }
        TopicsError::NotCreated { .. } | TopicsError::Refused { .. } => {
            Item::unreachable(name, what, "see the broker's log")
        }
    }
}

fn failed(name: &str, error: &InspectError) -> Item {
    let what = error_chain(error);
    match error {
        InspectError::Settings(_) => Item::finding(name, what, "correct KAFKA_PROPERTIES and KAFKA_GROUP"),
        InspectError::NoTopic { .. } => Item::finding(name, what, "create it"),
        InspectError::Unknown { .. } | InspectError::Ended { .. } => {
            Item::unreachable(name, what, "start the brokers, or correct KAFKA_BROKERS and KAFKA_PROPERTIES")
        }
    }
}
