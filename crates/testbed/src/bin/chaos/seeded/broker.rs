//! The faults of the broker and of its topics.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::world::{Stop, TOPIC, World};

/// A kill or a stop in order, and the start after it.
pub(super) async fn stop(world: &mut World, stop: Stop, lasts: Duration) -> Result<()> {
    world.stop_broker(stop).await?;
    sleep(lasts).await;
    world.broker.restart().await
}

/// One more partition for the source.
pub(super) async fn add_partition(world: &World, lasts: Duration) -> Result<()> {
    let partitions = world.kafka.end_offsets(TOPIC).await?.len();
    world.kafka.add_partitions(TOPIC, partitions + 1).await?;
    sleep(lasts).await;
    // The producer learns of the new partition with this.
    world.kafka.end_offsets(TOPIC).await.map(drop)
}

/// The topics take no record, since none is small enough, and then again what they took before.
pub(super) async fn refuse(world: &World, topics: &[String], lasts: Duration) -> Result<()> {
    let mut before = Vec::new();
    for topic in topics {
        let settings = world.kafka.topic_settings(topic).await?;
        let mut refusing = settings.clone();
        refusing.insert("max.message.bytes".to_owned(), "1".to_owned());
        world.kafka.set_topic(topic, &refusing).await?;
        before.push((topic, settings));
    }
    sleep(lasts).await;
    for (topic, settings) in before {
        world.kafka.set_topic(topic, &settings).await?;
    }
    Ok(())
}
