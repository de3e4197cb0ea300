//! What one wake of the poll thread has read, grouped by lane. It copies bytes out of the client's messages and
//! judges nothing.

use bytes::Bytes;
use core_delivery::event::UnixMillis;
use core_delivery::record::{Assignment, Offset, Record};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;

use crate::native;

/// Records of one lane, in rising offset order.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) assignment: Assignment,
    pub(crate) records: Vec<Record>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) bytes: usize,
}

/// Runs, those of one lane in the order in which they were read.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    runs: Vec<Run>,
    records: usize,
    bytes: usize,
}

impl Burst {
    /// How many records it holds.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// What they weigh, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The assignment that an earlier record of the same lane was read under.
    pub(crate) fn assignment(&self, topic: &str, partition: i32) -> Option<&Assignment> {
        self.run_of(topic, partition).map(|at| &self.runs[at].assignment)
    }

    /// Adds a record. One that does not lie behind the lane's last one begins a run of its own.
    pub(crate) fn push(&mut self, assignment: Assignment, record: Record) {
        let weight = record.weight();
        let offset = record.offset.0;
        self.records += 1;
        self.bytes += weight;
        let latest = self.run_of(assignment.lane.topic.as_str(), assignment.lane.partition);
        match latest.map(|at| &mut self.runs[at]) {
            Some(run) if run.last < offset => {
                run.last = offset;
                run.bytes += weight;
                run.records.push(record);
            }
            _ => {
                let records = vec![record];
                self.runs.push(Run { assignment, records, first: offset, last: offset, bytes: weight });
            }
        }
    }

    pub(crate) fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    // Neighbours mostly belong together, and a lane's latest run counts: search from the end.
    fn run_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.runs
            .iter()
            .rposition(|run| run.assignment.lane.partition == partition && run.assignment.lane.topic.as_str() == topic)
    }
}

/// Copies a message.
pub(crate) fn record(message: &BorrowedMessage<'_>) -> Record {
    let (headers, unreadable_headers) = native::headers(message);
    Record {
        offset: Offset(message.offset()),
        timestamp: message.timestamp().to_millis().map(UnixMillis),
        key: message.key().map(Bytes::copy_from_slice),
        payload: message.payload().map(Bytes::copy_from_slice),
        headers,
        unreadable_headers,
    }
}

#[cfg(test)]
mod tests {
    use core_delivery::record::{Epoch, LaneId, Topic};

    use super::*;

    fn at(offset: i64) -> Record {
        let payload = Some(Bytes::from_static(b"12345"));
        Record { offset: Offset(offset), timestamp: None, key: None, payload, headers: vec![], unreadable_headers: 0 }
    }

    fn owned(partition: i32) -> Assignment {
        Assignment { lane: LaneId { topic: Topic::new("orders"), partition }, epoch: Epoch(1) }
    }

    #[test]
    fn records_are_grouped_by_lane_in_the_order_they_were_read() {
        let mut burst = Burst::default();
        for (partition, offset) in [(0, 1), (1, 7), (0, 3), (1, 8)] {
            burst.push(owned(partition), at(offset));
        }
        assert_eq!((burst.records(), burst.bytes()), (4, 20));
        assert_eq!(burst.assignment("orders", 1), Some(&owned(1)));
        assert_eq!(burst.assignment("orders", 2), None);
        let runs = burst.into_runs();
        let shape: Vec<_> = runs.iter().map(|r| (r.assignment.lane.partition, r.first, r.last, r.bytes)).collect();
        assert_eq!(shape, [(0, 1, 3, 10), (1, 7, 8, 10)]);
    }

    #[test]
    fn a_jump_back_begins_a_run_of_its_own() {
        let mut burst = Burst::default();
        for offset in [5, 6, 0, 1] {
            burst.push(owned(0), at(offset));
        }
        let runs = burst.into_runs();
        let shape: Vec<_> = runs.iter().map(|r| (r.first, r.last)).collect();
        assert_eq!(shape, [(5, 6), (0, 1)]);
    }
}
