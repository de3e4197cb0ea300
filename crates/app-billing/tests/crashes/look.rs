//! What is true in the instant in which the process is dead: no offset, in Kafka or stored, stands behind a record that
//! has no verdict.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, ensure};
use serde_json::Value;
use testbed::clients::ReadRecord;

use crate::world::{TIERS, World};

/// D-2. The offsets are read first and what they must be covered by afterwards, so that what a server still does for the
/// dead can only help.
pub(crate) async fn no_offset_is_ahead_of_its_verdicts(world: &World) -> Result<()> {
    let mut topics = vec![world.topic.clone()];
    topics.extend(TIERS.iter().map(|tier| world.retry_topic(tier)));
    let mut next: HashMap<String, i64> = HashMap::new();
    for position in world.ledger.positions(&world.group).await? {
        next.insert(position.topic, position.next_offset);
    }
    for topic in &topics {
        let committed = world.kafka.committed(&world.group, topic, 1).await?[0].unwrap_or(0);
        let stored = next.entry(topic.clone()).or_insert(0);
        ensure!(
            committed <= *stored,
            "D-11: {topic} is committed up to {committed} in Kafka, and stored up to {stored}"
        );
    }

    let claims: HashSet<String> = world.ledger.claims(&world.group).await?.iter().map(ToString::to_string).collect();
    let mut copied: HashSet<i64> = HashSet::new();
    for topic in topics[1..].iter().chain([&world.dead_letter_topic()]) {
        copied.extend(world.kafka.read_all(topic).await?.iter().filter_map(origin));
    }
    for topic in &topics {
        for record in world.kafka.read_all(topic).await?.into_iter().filter(|record| record.offset < next[topic]) {
            let claimed = event_id(&record).is_some_and(|id| claims.contains(&id));
            // Nothing that is in a tier is copied a second time on any of the paths.
            let copied = *topic == world.topic && copied.contains(&record.offset);
            let offset = record.offset;
            ensure!(claimed || copied, "D-2: {topic} is done up to {}, and {offset} has no verdict", next[topic]);
        }
    }
    Ok(())
}

fn origin(copy: &ReadRecord) -> Option<i64> {
    copy.header("delivery-origin-offset")?.parse().ok()
}

fn event_id(record: &ReadRecord) -> Option<String> {
    let event: Value = serde_json::from_slice(record.payload.as_deref()?).ok()?;
    event["event_id"].as_str().map(str::to_owned)
}
