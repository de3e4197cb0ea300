//! Positions as an operator sees and sets them: what Kafka and the database hold for each lane, and which changes make
//! sense. Pure; nothing here reads or writes a position.

use anyhow::{Error, bail};
use core_delivery::delivery::{Start, start};
use core_delivery::ports::{Arrival, StoredPosition};
use core_delivery::record::{Committable, LaneId};
use serde_json::{Value, json};

use super::table::{or_dash, table};

/// What is known of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    /// The lane.
    pub lane: LaneId,
    /// What Kafka knows.
    pub arrival: Arrival,
    /// What the database holds, of every log that had this name.
    pub stored: Vec<StoredPosition>,
}

impl LaneState {
    /// What the database holds for the log that the lane is now.
    pub fn stored_here(&self) -> Option<Committable> {
        self.stored.iter().find(|stored| stored.identity == self.arrival.identity).map(|stored| stored.next)
    }

    fn starts(&self) -> Start {
        start(&self.arrival, &self.stored)
    }

    fn remark(&self) -> &'static str {
        use core_delivery::delivery::Alarm;
        match self.starts() {
            Start::Refused { .. } => "refused: `positions import` or `positions set` says where it starts",
            Start::At { alarm: None, .. } => "",
            Start::At { alarm: Some(Alarm::AnotherLog), .. } => "stored for another topic or cluster of this name",
            Start::At { alarm: Some(Alarm::PastTheEnd { .. }), .. } => "past the end of the log",
            Start::At { alarm: Some(Alarm::Expired { .. }), .. } => "records expired before they were consumed",
            Start::At { alarm: Some(Alarm::StoreIsBehind { .. }), .. } => {
                "the database is behind Kafka, or only ends of transactions lie between"
            }
        }
    }
}

/// A row for each lane.
pub fn to_table(lanes: &[LaneState]) -> String {
    let rows: Vec<Vec<String>> = lanes
        .iter()
        .map(|state| {
            let Arrival { committed, first, end, .. } = &state.arrival;
            let starts_at = match state.starts() {
                Start::At { position, .. } => Some(position),
                Start::Refused { .. } => None,
            };
            vec![
                state.lane.topic.to_string(),
                state.lane.partition.to_string(),
                or_dash(committed.map(|next| next.0)),
                or_dash(state.stored_here().map(|next| next.0)),
                first.0.to_string(),
                end.0.to_string(),
                or_dash(starts_at.map(|next| next.0)),
                or_dash(starts_at.map(|next| end.0 - next.0)),
                state.remark().to_owned(),
            ]
        })
        .collect();
    table(&["TOPIC", "PARTITION", "KAFKA", "STORED", "FIRST", "END", "STARTS AT", "LAG", "REMARK"], &rows)
}

/// The same for a script.
pub fn to_json(lanes: &[LaneState]) -> Value {
    let entry = |state: &LaneState| {
        let starts_at = match state.starts() {
            Start::At { position, .. } => Some(position.0),
            Start::Refused { .. } => None,
        };
        json!({
            "topic": state.lane.topic.as_str(),
            "partition": state.lane.partition,
            "committed": state.arrival.committed.map(|next| next.0),
            "stored": state.stored_here().map(|next| next.0),
            "first": state.arrival.first.0,
            "end": state.arrival.end.0,
            "starts_at": starts_at,
            "remark": state.remark(),
        })
    };
    lanes.iter().map(entry).collect()
}

/// The lane that is to be set, if the position makes sense there.
pub fn settable<'a>(lanes: &'a [LaneState], lane: &LaneId, next: Committable) -> Result<&'a LaneState, Error> {
    let Some(state) = lanes.iter().find(|state| state.lane == *lane) else {
        let mut topics: Vec<&str> = lanes.iter().map(|state| state.lane.topic.as_str()).collect();
        topics.dedup();
        bail!("the group does not read {lane}: it reads the partitions of {}", topics.join(", "));
    };
    let (first, end) = (state.arrival.first, state.arrival.end);
    if !(first..=end).contains(&next) {
        bail!("{lane} holds the offsets {} to {}: the position must be one of them, or {}", first.0, end.0 - 1, end.0);
    }
    Ok(state)
}

/// The lanes for which Kafka's offset can be taken over, with that offset.
pub fn importable(lanes: &[LaneState]) -> Vec<(&LaneState, Committable)> {
    let refused = lanes.iter().filter_map(|state| match state.starts() {
        Start::Refused { committed } => Some((state, committed)),
        Start::At { .. } => None,
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use core_delivery::record::{LogIdentity, Topic};

    use super::*;

    fn log(topic: &str) -> LogIdentity {
        LogIdentity { cluster: "c".into(), topic: topic.into() }
    }

    fn lane(partition: i32) -> LaneId {
        LaneId { topic: Topic::new("orders"), partition }
    }

    fn state(partition: i32, committed: Option<i64>, stored: Option<(&str, i64)>) -> LaneState {
        LaneState {
            lane: lane(partition),
            arrival: Arrival {
                identity: log("t1"),
                committed: committed.map(Committable),
                first: Committable(10),
                end: Committable(100),
            },
            stored: stored
                .map(|(topic, next)| StoredPosition { identity: log(topic), next: Committable(next) })
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn only_lanes_without_any_stored_position_take_kafkas_over() {
        let lanes = [
            state(0, Some(40), None),
            state(1, Some(40), Some(("t1", 30))),
            state(2, None, None),
            state(3, Some(40), Some(("t0", 30))),
        ];
        let taken: Vec<_> =
            importable(&lanes).into_iter().map(|(state, next)| (state.lane.partition, next.0)).collect();
        assert_eq!(taken, [(0, 40)]);
    }

    #[test]
    fn a_position_is_set_within_the_log_only() {
        let lanes = [state(0, None, None)];
        for next in [10, 55, 100] {
            assert!(settable(&lanes, &lane(0), Committable(next)).is_ok());
        }
        for next in [9, 101, -1] {
            let error = settable(&lanes, &lane(0), Committable(next)).expect_err("refused").to_string();
            assert!(error.contains("10 to 99"), "{error}");
        }
        let error = settable(&lanes, &lane(7), Committable(10)).expect_err("refused").to_string();
        assert!(error.contains("orders/7"), "{error}");
    }

    #[test]
    fn the_table_tells_where_each_lane_starts_and_why() {
        let lanes = [state(0, Some(40), Some(("t1", 30))), state(1, Some(40), None)];
        let text = to_table(&lanes);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..8], ["orders", "0", "40", "30", "10", "100", "30", "70"]);
        assert_eq!(lines[2][..8], ["orders", "1", "40", "-", "10", "100", "-", "-"]);
        assert!(text.contains("positions import") && text.contains("the database is behind"));
        assert_eq!(to_json(&lanes)[1]["starts_at"], Value::Null);
        assert_eq!(to_json(&lanes)[0]["starts_at"], 30);
    }
}
