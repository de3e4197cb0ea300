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
    /// Held by the one that looks up; what failed last, and when.
    lookup: Mutex<HashMap<Topic, (ClientError, Instant)>>,
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
        // One look-up at a time. Those that waited for it share its result, or with the broker away each of them would
        // wait for a look-up of its own, one after the other.
        let since = Instant::now();
        let mut failures = self.lookup.lock().await;
        if let Some(answer) = self.recall(topic, partition) {
            return Ok(answer);
        }
        if let Some((error, _)) = failures.get(topic).filter(|(_, failed)| *failed >= since) {
            return Err(error.clone());
        }
        let (asked, wanted) = (Arc::clone(client), topic.clone());
        let answer = tokio::task::spawn_blocking(move || look_up(&asked, wanted.as_str())).await;
        match answer.map_err(|_| ClientError::Canceled).flatten() {
            Ok(count) => {
                failures.remove(topic);
                self.known().insert(topic.clone(), (count, Instant::now()));
                Ok((0..count).contains(&partition))
            }
            Err(error) => {
                failures.insert(topic.clone(), (error.clone(), Instant::now()));
                Err(error)
            }
        }
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
