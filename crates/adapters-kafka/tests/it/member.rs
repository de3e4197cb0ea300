//! A member of a group as the tests drive it: it collects what the stream says and settles by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adapters_kafka::{KafkaSettings, KafkaStream};
use core_delivery::ports::{Arrival, Progress, RecordStream, StreamControl, StreamEvent};
use core_delivery::record::{Assignment, Committable, LaneId, Record, Topic};
use tokio::time::timeout;

use crate::broker::LIMIT;

pub(crate) struct Member {
    pub(crate) stream: KafkaStream,
    pub(crate) control: Arc<dyn StreamControl>,
    /// The lanes that are owned now.
    pub(crate) owned: BTreeMap<LaneId, Assignment>,
    /// All records of each lane, since the start or the last assignment.
    pub(crate) records: BTreeMap<LaneId, Vec<Record>>,
    pub(crate) revoked: Vec<Assignment>,
    pub(crate) lost: Vec<Assignment>,
    /// What was told of each lane at its last assignment.
    pub(crate) arrivals: BTreeMap<LaneId, Arrival>,
    /// Whether an assigned lane starts by itself, where the group's offset is.
    pub(crate) starts: bool,
    settled: BTreeMap<LaneId, usize>,
}

impl Member {
    pub(crate) fn start(settings: &KafkaSettings, group: &str, topic: &Topic) -> Self {
        let (stream, control) = KafkaStream::start(settings, group, std::slice::from_ref(topic)).expect("starts");
        Self {
            stream,
            control,
            owned: BTreeMap::new(),
            records: BTreeMap::new(),
            revoked: Vec::new(),
            lost: Vec::new(),
            arrivals: BTreeMap::new(),
            starts: true,
            settled: BTreeMap::new(),
        }
    }

    /// Takes one event; false at the end of the stream. Nothing is settled or released by itself.
    pub(crate) async fn step(&mut self) -> bool {
        match timeout(LIMIT, self.stream.next()).await.expect("an event within the limit") {
            None => return false,
            Some(StreamEvent::Assigned(assignment, arrival)) => {
                if self.starts {
                    self.control.start(&assignment, arrival.committed.unwrap_or(arrival.first));
                }
                self.arrivals.insert(assignment.lane.clone(), arrival);
                self.records.insert(assignment.lane.clone(), Vec::new());
                self.settled.insert(assignment.lane.clone(), 0);
                self.owned.insert(assignment.lane.clone(), assignment);
            }
            Some(StreamEvent::Records(assignment, records)) => {
                assert_eq!(self.owned.get(&assignment.lane), Some(&assignment), "records of an owned lane only");
                self.records.entry(assignment.lane).or_default().extend(records);
            }
            Some(StreamEvent::Revoked(assignment)) => self.revoked.push(assignment),
            Some(StreamEvent::Lost(assignment)) => {
                assert_eq!(self.owned.remove(&assignment.lane), Some(assignment.clone()));
                self.lost.push(assignment);
            }
            Some(StreamEvent::Failed(error)) => panic!("{error}"),
        }
        true
    }

    /// Takes events until the condition holds.
    pub(crate) async fn until(&mut self, condition: impl Fn(&Self) -> bool) {
        let all = async {
            while !condition(self) {
                assert!(self.step().await, "the stream ended");
            }
        };
        timeout(LIMIT, all).await.expect("the condition holds within the limit");
    }

    /// Takes whatever comes within a time.
    pub(crate) async fn for_a_while(&mut self, time: Duration) {
        let all = async { while self.step().await {} };
        drop(timeout(time, all).await);
    }

    pub(crate) fn count(&self, partition: i32) -> usize {
        let of = self.records.iter().filter(|(lane, _)| lane.partition == partition);
        of.map(|(_, records)| records.len()).sum()
    }

    pub(crate) fn all(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    pub(crate) fn owns(&self, partition: i32) -> bool {
        self.owned.keys().any(|lane| lane.partition == partition)
    }

    pub(crate) fn lane(&self, partition: i32) -> Assignment {
        let found = self.owned.values().find(|assignment| assignment.lane.partition == partition);
        found.expect("owned").clone()
    }

    pub(crate) fn arrival(&self, partition: i32) -> &Arrival {
        &self.arrivals[&self.lane(partition).lane]
    }

    /// Starts a lane at an offset.
    pub(crate) fn begin(&self, partition: i32, at: i64) {
        self.control.start(&self.lane(partition), Committable(at));
    }

    pub(crate) fn payloads(&self, partition: i32) -> Vec<String> {
        let of = self.records.iter().filter(|(lane, _)| lane.partition == partition);
        of.flat_map(|(_, records)| records)
            .map(|record| String::from_utf8(record.payload.clone().expect("payload").to_vec()).expect("text"))
            .collect()
    }

    /// Settles the first `count` records of a lane that were delivered since its assignment.
    pub(crate) fn settle(&mut self, partition: i32, count: usize) {
        let assignment = self.lane(partition);
        let before = self.settled.insert(assignment.lane.clone(), count).unwrap_or(0);
        let newly = &self.records[&assignment.lane][before..count];
        let Some(last) = newly.last() else { return };
        let bytes = newly.iter().map(Record::weight).sum();
        let position = last.offset.committable();
        self.control.progress(&assignment, Progress { position, records: newly.len(), bytes });
    }

    /// Settles all that was delivered.
    pub(crate) fn settle_all(&mut self) {
        let partitions: Vec<i32> = self.owned.keys().map(|lane| lane.partition).collect();
        for partition in partitions {
            self.settle(partition, self.count(partition));
        }
    }

    /// Stops and takes all events up to the end, releasing what is revoked.
    pub(crate) async fn stop(&mut self) {
        self.control.stop();
        let mut released = self.revoked.len();
        while self.step().await {
            for assignment in &self.revoked[released..] {
                self.control.released(assignment);
            }
            released = self.revoked.len();
        }
        assert!(self.owned.is_empty(), "a lane was neither revoked nor lost");
    }
}

/// Progress to a position, out of order.
pub(crate) fn position(next: i64) -> Progress {
    Progress { position: Committable(next), records: 0, bytes: 0 }
}
