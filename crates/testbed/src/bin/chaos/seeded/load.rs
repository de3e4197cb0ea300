//! The records of a run, each with the verdict that it must get, and their way to the topic, spread over the run.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result};
use sandbox::samples::{Expected, Sample, Subject};
use testbed::clients::{KafkaClient, ReadRecord};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// How often some records are written.
const TICK: Duration = Duration::from_millis(100);
/// Records on their way at once; while the broker is away they wait.
const IN_FLIGHT: usize = 20_000;

/// Everything that must become of the load.
pub(super) struct Load {
    /// In the order in which they are written.
    pub(super) samples: Vec<Sample>,
    /// One sample of each subject.
    pub(super) subjects: Vec<Sample>,
    by_bytes: HashMap<(Vec<u8>, Option<Vec<u8>>), usize>,
    by_subject: HashMap<Subject, usize>,
}

impl Load {
    pub(super) fn new(samples: Vec<Sample>) -> Self {
        let mut load =
            Self { samples: Vec::new(), subjects: Vec::new(), by_bytes: HashMap::new(), by_subject: HashMap::new() };
        for sample in &samples {
            let next = load.subjects.len();
            let number = *load.by_subject.entry(sample.subject.clone()).or_insert(next);
            if number == next {
                load.subjects.push(sample.clone());
            }
            load.by_bytes.insert((sample.key.to_vec(), sample.payload.as_ref().map(|bytes| bytes.to_vec())), number);
        }
        load.samples = samples;
        load
    }

    /// Which subject a record of any topic is of, by its bytes: copies keep them.
    pub(super) fn of_record(&self, record: &ReadRecord) -> Option<usize> {
        self.by_bytes.get(&(record.key.clone()?, record.payload.clone())).copied()
    }

    /// Which subject this event is.
    pub(super) fn of_event(&self, id: &str) -> Option<usize> {
        self.by_subject.get(&Subject::Event(id.parse().ok()?)).copied()
    }

    /// How many subjects are to be applied, and how many to be dead letters.
    pub(super) fn expected(&self) -> (usize, usize) {
        let count = |wanted: fn(Expected) -> bool| self.subjects.iter().filter(|s| wanted(s.expected)).count();
        (
            count(|expected| matches!(expected, Expected::Charged | Expected::Free)),
            count(|expected| matches!(expected, Expected::DeadLettered(_))),
        )
    }
}

/// The event's id, or the record's key.
pub(super) fn name(sample: &Sample) -> String {
    match &sample.subject {
        Subject::Event(id) => format!("event {id}"),
        Subject::Record(key) => format!("record {}", String::from_utf8_lossy(key)),
    }
}

/// Key and payload.
pub(super) type Record = (Vec<u8>, Option<Vec<u8>>);

/// Writes everything, evenly over the time. Returns where each record was acknowledged.
pub(super) async fn write(
    kafka: KafkaClient,
    topic: &'static str,
    records: Vec<Record>,
    over: Duration,
) -> Result<Vec<(i32, i64)>> {
    let begun = Instant::now();
    let ticks = u32::try_from(over.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).max(1);
    let a_tick = records.len().div_ceil(usize::try_from(ticks)?);
    let mut on_their_way = JoinSet::new();
    let mut written = Vec::with_capacity(records.len());
    for (tick, some) in (0..).zip(records.chunks(a_tick)) {
        sleep_until(begun + TICK * tick).await;
        for record in some {
            let acknowledged = kafka.enqueue(topic, &record.0, record.1.as_deref())?;
            let (kafka, record) = (kafka.clone(), record.clone());
            on_their_way.spawn(async move {
                match acknowledged.await {
                    Ok(place) => Ok(place),
                    Err(_) => again(&kafka, topic, &record).await,
                }
            });
        }
        while on_their_way.len() > IN_FLIGHT || on_their_way.try_join_next().map(|one| written.push(one)).is_some() {
            if on_their_way.len() > IN_FLIGHT {
                written.extend(on_their_way.join_next().await);
            }
        }
    }
    while let Some(one) = on_their_way.join_next().await {
        written.push(one);
    }
    written.into_iter().map(|one| one.context("a producer panicked")?).collect()
}

/// A producer that has not heard an acknowledgement writes again, and may have written twice.
async fn again(kafka: &KafkaClient, topic: &str, record: &Record) -> Result<(i32, i64)> {
    let mut tries = 0;
    loop {
        sleep(TICK).await;
        match kafka.enqueue(topic, &record.0, record.1.as_deref())?.await {
            Ok(place) => return Ok(place),
            Err(error) if tries == 10 => return Err(error.context("the broker took a record in vain ten times")),
            Err(_) => tries += 1,
        }
    }
}
