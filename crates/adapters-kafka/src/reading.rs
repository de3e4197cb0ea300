//! All records of a topic, once, without a group: for dead letters and audits. It commits nothing and joins nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use core_delivery::record::{LaneId, Record, Topic};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use tokio::sync::mpsc::{Sender, channel};

use crate::burst;
use crate::cluster::hear_the_reason;
use crate::context::Callbacks;
use crate::inspect::{ANSWER_LIMIT, InspectError, lanes_of};
use crate::lookup::{Lookup, LookupError, offsets};
use crate::names::check_topic;
use crate::positions;
use crate::settings::KafkaSettings;

/// Without any progress for this long, the rest is not waited for.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// How long one wake waits for a record.
const WAIT: Duration = Duration::from_millis(100);
/// How much is handed over at once; two of these wait at most.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// Reads the topic from its first record to the end as it is when this is called, and calls `each` with every record
/// of a committed transaction or of none, in offset order within a lane. Records of a transaction that is open at the
/// call are not waited for, nor what lies behind them. Returns how many records there were.
///
/// Needs a Tokio runtime. It takes as long as the topic is large, but fails after 30 s without progress. `each` should be
/// quick; the reading waits for it, with a bounded number of records in memory. Cancel safe.
///
/// # Errors
/// When the settings are refused, the topic does not exist, or the brokers do not tell all of it; what was read until
/// then was passed to `each`.
pub async fn read_topic(
    settings: &KafkaSettings,
    topic: &Topic,
    mut each: impl FnMut(Record, LaneId),
) -> Result<usize, InspectError> {
    settings.validate()?;
    check_topic(topic)?;
    let (sender, mut batches) = channel(2);
    let (settings, topic) = (settings.clone(), topic.clone());
    // It ends soon after this future is dropped, because then nobody receives.
    let reading = tokio::task::spawn_blocking(move || Reader::open(&settings, &topic)?.read(&sender));
    let mut count = 0;
    while let Some(batch) = batches.recv().await {
        for (record, lane) in batch {
            count += 1;
            each(record, lane);
        }
    }
    reading.await.map_err(|error| InspectError::Ended { source: error.into() })??;
    Ok(count)
}

type Batch = Vec<(Record, LaneId)>;

struct Reader {
    client: BaseConsumer<Callbacks>,
    brokers: String,
    topic: Topic,
    /// The ends of those partitions that are not read to the end.
    open: HashMap<i32, i64>,
    batch: Batch,
    bytes: usize,
}

impl Reader {
    fn open(settings: &KafkaSettings, topic: &Topic) -> Result<Self, InspectError> {
        let config = settings.reader();
        let unknown = |error| InspectError::unknown(&settings.brokers, error);
        let lookup = Lookup::new(settings, config.get("group.id").unwrap_or_default(), ANSWER_LIMIT);
        let lanes = lanes_of(&lookup.map_err(unknown)?, &settings.brokers, std::slice::from_ref(topic))?;

        let client = config.create_with_context(Callbacks::default());
        let client = client.map_err(|error| unknown(LookupError::of("the client cannot be made", &error)))?;
        let first = offsets(&client, &lanes, Offset::Beginning, ANSWER_LIMIT).map_err(unknown)?;
        // For a client that reads committed records only, the end is where the first open transaction begins.
        let ends = offsets(&client, &lanes, Offset::End, ANSWER_LIMIT).map_err(unknown)?;
        let open = ends.iter().filter(|(lane, end)| first.get(*lane).is_some_and(|first| first < *end));
        let open: HashMap<i32, i64> = open.map(|(lane, end)| (lane.partition, *end)).collect();
        let mut list = TopicPartitionList::new();
        let listed = open
            .keys()
            .try_for_each(|partition| list.add_partition_offset(topic.as_str(), *partition, Offset::Beginning));
        let assigned = listed.and_then(|()| client.assign(&list));
        assigned.map_err(|error| unknown(LookupError::of("the topic cannot be read", &error)))?;
        let (brokers, topic) = (settings.brokers.clone(), topic.clone());
        Ok(Self { client, brokers, topic, open, batch: Batch::new(), bytes: 0 })
    }

    fn read(mut self, to: &Sender<Batch>) -> Result<(), InspectError> {
        let mut heard = Instant::now();
        while !self.open.is_empty() {
            if to.is_closed() {
                return Ok(());
            }
            match self.client.poll(WAIT) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    let is_wanted = self.open.get(&partition).is_some_and(|end| offset < *end);
                    let record = is_wanted.then(|| burst::record(&message));
                    drop(message);
                    heard = Instant::now();
                    if let Some(record) = record {
                        self.keep(record, partition);
                    }
                    self.pass(partition, offset + 1);
                }
                Some(Err(ClientError::PartitionEOF(partition))) => {
                    heard = Instant::now();
                    self.pass(partition, i64::MAX);
                }
                Some(Err(error)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                    return Err(self.unknown(LookupError::of("the topic cannot be read", &error)));
                }
                // Everything else passes by itself, or there is silence.
                Some(Err(_)) => {}
                None => {
                    // What lies behind the last record may be none.
                    for (lane, next) in positions::reached(&self.client) {
                        self.pass(lane.partition, next);
                    }
                    if !self.hand_over(to) {
                        return Ok(());
                    }
                }
            }
            let is_full = self.batch.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES;
            if is_full {
                if !self.hand_over(to) {
                    return Ok(());
                }
                heard = Instant::now();
            }
            if heard.elapsed() > SILENCE_LIMIT {
                let what = format!("{} partitions of `{}` are silent", self.open.len(), self.topic);
                return Err(self.unknown(LookupError::new(what, RDKafkaErrorCode::OperationTimedOut)));
            }
        }
        self.hand_over(to);
        Ok(())
    }

    fn keep(&mut self, record: Record, partition: i32) {
        self.bytes += record.weight();
        self.batch.push((record, LaneId { topic: self.topic.clone(), partition }));
    }

    /// A partition is read up to `next`. What is behind its end is not fetched any more.
    fn pass(&mut self, partition: i32, next: i64) {
        if self.open.get(&partition).is_some_and(|end| next >= *end) {
            self.open.remove(&partition);
            let done = LaneId { topic: self.topic.clone(), partition };
            positions::pause(&self.client, &[done]);
        }
    }

    /// False if nobody receives any more.
    fn hand_over(&mut self, to: &Sender<Batch>) -> bool {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        batch.is_empty() || to.blocking_send(batch).is_ok()
    }

    fn unknown(&self, error: LookupError) -> InspectError {
        hear_the_reason(&self.client);
        let told = self.client.context().health.last_error();
        let text = told.map_or(error.text.clone(), |told| format!("{} ({told})", error.text));
        InspectError::unknown(&self.brokers, LookupError { text, ..error })
    }
}
