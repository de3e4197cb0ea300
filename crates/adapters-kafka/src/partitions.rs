//! How many partitions the topics have that are written to, looked up once in a while. It writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as PlainMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use core_delivery::record::Topic;
use rdkafka::error::{IsError, KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::producer::Producer;
use tokio::sync::Mutex;

use crate::publisher::Client;

/// How long one look-up may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// A partition that a topic did not have is looked for again after this time: partitions can be added.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// The counts known so far.
#[derive(Debug, Default)]
pub(crate) struct PartitionCounts {
    known: PlainMutex<HashMap<Topic, (i32, Instant)>>,
    lookup: Mutex<()>,
}

impl PartitionCounts {
    /// Whether the topic has the partition. Cancel safe.
    ///
    /// # Errors
    /// When the broker does not tell within 5 s, or the topic does not exist.
    pub(crate) async fn has(&self, client: &Arc<Client>, topic: &Topic, partition: i32) -> Result<bool, ClientError> {
        if let Some(answer) = self.recall(topic, partition) {
            return Ok(answer);
        }
        // One look-up at a time: the others find its result.
        let _turn = self.lookup.lock().await;
        if let Some(answer) = self.recall(topic, partition) {
            return Ok(answer);
        }
        let (asked, wanted) = (Arc::clone(client), topic.clone());
        let count = tokio::task::spawn_blocking(move || look_up(&asked, wanted.as_str()))
            .await
            .map_err(|_| ClientError::Canceled)??;
        self.known().insert(topic.clone(), (count, Instant::now()));
        Ok((0..count).contains(&partition))
    }

    /// The topic may have changed: look again next time.
    pub(crate) fn forget(&self, topic: &Topic) {
        self.known().remove(topic);
    }

    fn recall(&self, topic: &Topic, partition: i32) -> Option<bool> {
        let (count, asked) = *self.known().get(topic)?;
        let has = (0..count).contains(&partition);
        (has || asked.elapsed() < STALE_AFTER).then_some(has)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Topic, (i32, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(client: &Client, topic: &str) -> Result<i32, ClientError> {
    let metadata = client.client().fetch_metadata(Some(topic), LOOKUP_LIMIT)?;
    let unknown = || ClientError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
    let found = metadata.topics().iter().find(|found| found.name() == topic).ok_or_else(unknown)?;
    match found.error() {
        Some(error) if error.is_error() => Err(ClientError::MetadataFetch(error.into())),
        _ => i32::try_from(found.partitions().len()).map_err(|_| unknown()),
    }
}
