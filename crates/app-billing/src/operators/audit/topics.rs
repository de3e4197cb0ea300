//! The facts that the topics tell: what was produced, copied and given up, and how far the group has come. It reads
//! from Kafka alone, and judges nothing.

use std::collections::HashMap;
use std::time::Duration;

use adapters_kafka::{InspectError, KafkaSettings, LaneFacts, read_topic};
use core_delivery::delivery::{Start, Topology, start};
use core_delivery::event::{Event, UnixMillis};
use core_delivery::headers::{Journey, last_failure};
use core_delivery::ports::{Decoded, ErrorClass, EventDecoder, StoredPosition};
use core_delivery::record::{LaneId, Record, Topic};
use core_order::OrderConfirmedDecoder;

use super::super::table::Progress;
use super::{Audit, Horizons, Passed, Unit};

/// How far the group had come when the audit began, and where each log begins.
pub struct Positions {
    next: HashMap<LaneId, i64>,
    first: HashMap<LaneId, i64>,
}

impl Positions {
    /// From what Kafka and the store know of each lane. A lane counts as passed up to where it would start: the lower
    /// of both. One that would not start is not judged at all.
    pub fn new(lanes: &[LaneFacts], stored: impl Fn(&LaneId) -> Vec<StoredPosition>) -> Self {
        let next = |facts: &LaneFacts| match start(&facts.arrival, &stored(&facts.lane)) {
            Start::At { position, .. } => position.0,
            Start::Refused { .. } => facts.arrival.first.0,
        };
        Self {
            next: lanes.iter().map(|facts| (facts.lane.clone(), next(facts))).collect(),
            first: lanes.iter().map(|facts| (facts.lane.clone(), facts.arrival.first.0)).collect(),
        }
    }

    fn passed(&self, lane: &LaneId, record: &Record) -> Passed {
        match self.next.get(lane) {
            Some(next) if record.offset.0 < *next => Passed::Yes,
            _ => Passed::NotYet,
        }
    }
}

/// Reads source, tiers and dead letters into the audit.
pub struct Topics<'a> {
    /// How to reach them.
    pub kafka: &'a KafkaSettings,
    /// Which they are.
    pub topology: &'a Topology,
    /// What their records are.
    pub decoder: &'a OrderConfirmedDecoder,
    /// How far the group has come.
    pub positions: &'a Positions,
    /// How far apart clocks may be.
    pub clock_skew: Duration,
    /// When the audit began.
    pub now: UnixMillis,
}

impl Topics<'_> {
    /// All of it, the source first. Returns since when everything is still there.
    pub async fn read(&self, audit: &mut Audit) -> Result<Horizons, InspectError> {
        let source = &self.topology.source;
        let mut source_age = Oldest::default();
        self.each(source, |record, lane| {
            source_age.saw(&lane, &record);
            let passed = self.positions.passed(&lane, &record);
            match self.decoder.decode(&record) {
                Decoded::Event(event) => audit.source(Unit::Event(event.id()), record.timestamp, passed),
                Decoded::Ignored(_) => audit.ignored(passed),
                Decoded::Undecodable(_) => {
                    audit.source(Unit::Place(lane.partition, record.offset.0), record.timestamp, passed);
                }
            }
        })
        .await?;
        for tier in &self.topology.tiers {
            self.each(&tier.topic, |record, lane| {
                let passed = self.positions.passed(&lane, &record);
                if let Some(unit) = self.unit_of_copy(&record, &lane) {
                    audit.tier(unit, passed);
                }
            })
            .await?;
        }
        let letters = &self.topology.dead_letters;
        let mut letters_age = Oldest::default();
        self.each(letters, |record, lane| {
            letters_age.saw(&lane, &record);
            let doubted = last_failure(&record).class == Some(ErrorClass::IN_DOUBT.as_str());
            if let Some(unit) = self.unit_of_copy(&record, &lane) {
                audit.letter(unit, doubted || Journey::resume(&lane, &record).in_doubt);
            }
        })
        .await?;
        Ok(Horizons {
            source: self.horizon(source, &source_age),
            letters: self.horizon(letters, &letters_age),
            claims: None,
        })
    }

    async fn each(&self, topic: &Topic, mut each: impl FnMut(Record, LaneId)) -> Result<(), InspectError> {
        let mut progress = Progress::of(format!("records of {topic} read"));
        let reading = read_topic(self.kafka, topic, |record, lane| {
            progress.step();
            each(record, lane);
        });
        reading.await.map(drop)
    }

    /// A copy is of the event that it carries, or of the record that it was first.
    fn unit_of_copy(&self, record: &Record, lane: &LaneId) -> Option<Unit> {
        if let Decoded::Event(event) = self.decoder.decode(record) {
            return Some(Unit::Event(event.id()));
        }
        let origin = Journey::resume(lane, record).origin;
        (origin.lane.topic == self.topology.source).then_some(Unit::Place(origin.lane.partition, origin.offset.0))
    }

    /// Since when a topic holds everything: the latest first record of those partitions that have lost some. A
    /// partition that has lost all of them tells nothing.
    fn horizon(&self, topic: &Topic, oldest: &Oldest) -> Option<UnixMillis> {
        let cut = self.positions.first.iter().filter(|(lane, first)| lane.topic == *topic && **first > 0);
        let since = cut.map(|(lane, _)| oldest.0.get(&lane.partition).copied().unwrap_or(self.now));
        since.max().map(|since| since.plus(self.clock_skew))
    }
}

/// When the first record of each partition was written.
#[derive(Default)]
struct Oldest(HashMap<i32, UnixMillis>);

impl Oldest {
    fn saw(&mut self, lane: &LaneId, record: &Record) {
        if let Some(written) = record.timestamp {
            self.0.entry(lane.partition).or_insert(written);
        }
    }
}
