//! The group as it is once it has worked for a while: each of its partitions has a position in the database.
//!
//! A database that loses the first position of a partition, of which Kafka has an offset, leaves the question open who
//! consumed there, and the service waits for an operator. That is its promise; but nobody could answer for one here.

use std::time::Duration;

use adapters_kafka::{KafkaSettings, TopicPlan, ensure_topics};
use anyhow::{Context, Result, ensure};
use core_delivery::record::Topic;
use testbed::clients::{KafkaClient, run_to_end};

use super::world::{GROUP, TIERS, TOPIC};

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Creates what the service would create at its start, and takes over the beginning of each partition.
pub(super) async fn begin(kafka: &KafkaClient, variables: &[(&'static str, String)]) -> Result<()> {
    let value = |name: &str| variables.iter().find(|(named, _)| *named == name).map(|(_, value)| value.clone());
    let settings = KafkaSettings::new(value("KAFKA_BROKERS").context("the brokers are known")?);
    let delays = TIERS.map(|tier| Duration::from_secs(tier.trim_end_matches('s').parse().expect("they are seconds")));
    let plan = TopicPlan::new(&Topic::new(TOPIC), GROUP, &delays);
    ensure_topics(&settings, &plan, true).await?;
    for topic in std::iter::once(&plan.source).chain(&plan.retries) {
        kafka.reset_to_earliest(GROUP, topic.as_str()).await?;
    }
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let imported = run_to_end(&["positions", "import"], &variables, LIMIT).await?;
    ensure!(imported.status.success(), "no first positions: {}", String::from_utf8_lossy(&imported.stderr));
    Ok(())
}
