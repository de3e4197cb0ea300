//! The headers that the kernel writes on copies, and what it reads back from them. The application's own headers
//! pass through untouched; nothing here decides where a copy goes.

mod replay;

use std::time::Duration;

use bytes::Bytes;

use crate::claim::ConsumerGroup;
use crate::event::UnixMillis;
use crate::ports::ErrorClass;
use crate::record::{Header, LaneId, Offset, OutgoingRecord, Record, Topic};

pub use replay::{LastFailure, last_failure, replay};

/// Every header of ours starts with this.
const PREFIX: &str = "delivery-";
const ORIGIN_TOPIC: &str = "delivery-origin-topic";
const ORIGIN_PARTITION: &str = "delivery-origin-partition";
const ORIGIN_OFFSET: &str = "delivery-origin-offset";
const ORIGIN_TIMESTAMP: &str = "delivery-origin-timestamp";
const GROUP: &str = "delivery-group";
const ERROR_CLASS: &str = "delivery-error-class";
const ERROR_TEXT: &str = "delivery-error-text";
const ATTEMPTS: &str = "delivery-attempts";
const FIRST_FAILURE: &str = "delivery-first-failure";
const DUE: &str = "delivery-due";
const REPLAYS: &str = "delivery-replays";
const IN_DOUBT: &str = "delivery-in-doubt";
const FORMAT: &str = "delivery-format";

/// The version of these headers.
const FORMAT_VERSION: &str = "1";

/// The longest error text that is written, in bytes.
pub const MAX_ERROR_TEXT: usize = 1024;

/// How much larger than its source record a copy can become: an upper bound of our headers, in bytes.
pub const MAX_HEADER_GROWTH: usize = 64 * 1024;

/// Where a record was first read by its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The source topic and partition.
    pub lane: LaneId,
    /// The offset there.
    pub offset: Offset,
    /// The record's time there.
    pub timestamp: Option<UnixMillis>,
}

/// What a record has been through, as its headers tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    /// Where it came from.
    pub origin: Origin,
    /// How often it was tried before this delivery.
    pub attempts: u32,
    /// When it first failed.
    pub first_failure: Option<UnixMillis>,
    /// When it may be tried again.
    pub due: Option<UnixMillis>,
    /// How often an operator sent it round again.
    pub replays: u32,
    /// An earlier try ended without a known outcome: the effect may have happened.
    pub in_doubt: bool,
}

impl Journey {
    /// The journey of a record of the source topic: it begins here, whatever its headers say.
    pub fn begin(lane: &LaneId, record: &Record) -> Self {
        Self {
            origin: Origin { lane: lane.clone(), offset: record.offset, timestamp: record.timestamp },
            attempts: 0,
            first_failure: None,
            due: None,
            replays: 0,
            in_doubt: false,
        }
    }

    /// The journey of a copy, read from its headers. What is absent or unreadable falls back to the copy's own
    /// place: a damaged header must not stop an event.
    pub fn resume(lane: &LaneId, record: &Record) -> Self {
        let own = Self::begin(lane, record);
        let origin = match (text(record, ORIGIN_TOPIC), number(record, ORIGIN_PARTITION), number(record, ORIGIN_OFFSET))
        {
            (Some(topic), Some(partition), Some(offset)) => Origin {
                lane: LaneId { topic: Topic::new(topic), partition },
                offset: Offset(offset),
                timestamp: number(record, ORIGIN_TIMESTAMP).map(UnixMillis),
            },
            _ => own.origin,
        };
        Self {
            origin,
            attempts: number(record, ATTEMPTS).unwrap_or(0),
            first_failure: number(record, FIRST_FAILURE).map(UnixMillis),
            due: number(record, DUE).map(UnixMillis),
            replays: number(record, REPLAYS).unwrap_or(0),
            in_doubt: text(record, IN_DOUBT) == Some("true"),
        }
    }

    /// When a copy in a tier may be tried: what the header says, but never later than the tier's own delay after
    /// the copy was written, so that a damaged header cannot hold a lane.
    pub fn due_in_tier(&self, record: &Record, delay: Duration, now: UnixMillis) -> UnixMillis {
        // Nor later than the delay from now, if it was written by a machine whose clock is ahead.
        let latest = record.timestamp.unwrap_or(now).min(now).plus(delay);
        self.due.map_or(latest, |due| due.min(latest))
    }
}

/// What is written on a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note<'a> {
    /// The group that could not finish the event.
    pub group: &'a ConsumerGroup,
    /// What the record has been through, this delivery included.
    pub journey: &'a Journey,
    /// Why it is sent on.
    pub class: &'a ErrorClass,
    /// The same in words; cut to [`MAX_ERROR_TEXT`].
    pub error_text: &'a str,
}

/// The copy of a record: the same key, payload and foreign headers, byte for byte, and our headers replaced, so
/// that their number and size stay constant over any number of hops.
pub fn copy(record: &Record, destination: Topic, partition: i32, note: &Note<'_>) -> OutgoingRecord {
    let mut headers: Vec<Header> = record.headers.iter().filter(|h| !is_ours(h)).cloned().collect();
    let mut add = |key: &str, value: String| {
        headers.push(Header { key: key.to_owned(), value: Some(Bytes::from(value)) });
    };
    let Journey { origin, attempts, first_failure, due, replays, in_doubt } = note.journey;
    add(ORIGIN_TOPIC, origin.lane.topic.to_string());
    add(ORIGIN_PARTITION, origin.lane.partition.to_string());
    add(ORIGIN_OFFSET, origin.offset.0.to_string());
    if let Some(timestamp) = origin.timestamp {
        add(ORIGIN_TIMESTAMP, timestamp.0.to_string());
    }
    add(GROUP, note.group.to_string());
    add(ERROR_CLASS, note.class.to_string());
    add(ERROR_TEXT, printable(note.error_text));
    add(ATTEMPTS, attempts.to_string());
    if let Some(first_failure) = first_failure {
        add(FIRST_FAILURE, first_failure.0.to_string());
    }
    if let Some(due) = due {
        add(DUE, due.0.to_string());
    }
    if *replays > 0 {
        add(REPLAYS, replays.to_string());
    }
    if *in_doubt {
        add(IN_DOUBT, "true".to_owned());
    }
    add(FORMAT, FORMAT_VERSION.to_owned());
    OutgoingRecord { topic: destination, partition, key: record.key.clone(), payload: record.payload.clone(), headers }
}

/// The same copy with our headers only: the last resort for a record that is too large with the others.
pub fn without_foreign_headers(mut copy: OutgoingRecord) -> OutgoingRecord {
    copy.headers.retain(is_ours);
    copy
}

fn is_ours(header: &Header) -> bool {
    header.key.starts_with(PREFIX)
}

/// The text cut to its limit at a character's end, without control characters.
fn printable(text: &str) -> String {
    let mut end = text.len().min(MAX_ERROR_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn text<'a>(record: &'a Record, key: &str) -> Option<&'a str> {
    let header = record.headers.iter().rev().find(|header| header.key == key)?;
    std::str::from_utf8(header.value.as_ref()?).ok()
}

fn number<T: std::str::FromStr>(record: &Record, key: &str) -> Option<T> {
    text(record, key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> LaneId {
        LaneId { topic: Topic::new("orders"), partition: 3 }
    }

    fn record(headers: Vec<Header>) -> Record {
        Record {
            offset: Offset(17),
            timestamp: Some(UnixMillis(1_000)),
            key: Some("o-1".into()),
            payload: Some("{}".into()),
            headers,
            unreadable_headers: 0,
        }
    }

    fn foreign() -> Header {
        Header { key: "traceparent".into(), value: Some("00-1".into()) }
    }

    fn hop(from: &Record, text: &str) -> OutgoingRecord {
        let mut journey = Journey::resume(&lane(), from);
        journey.attempts += 1;
        journey.first_failure.get_or_insert(UnixMillis(5));
        journey.due = Some(UnixMillis(99));
        let group = ConsumerGroup::new("billing");
        let note = Note { group: &group, journey: &journey, class: &ErrorClass::PERMANENT, error_text: text };
        copy(from, Topic::new("next"), 3, &note)
    }

    #[test]
    fn headers_are_replaced_and_do_not_pile_up() {
        let first = hop(&record(vec![foreign()]), "a");
        let mut copy = first.clone();
        for _ in 0..5 {
            copy = hop(&record(copy.headers.clone()), "a");
            assert_eq!(copy.headers.len(), first.headers.len());
        }
        let journey = Journey::resume(&lane(), &record(copy.headers.clone()));
        assert_eq!(journey.attempts, 6);
        assert_eq!(journey.first_failure, Some(UnixMillis(5)));
        assert_eq!(journey.origin.offset, Offset(17));
        assert_eq!(copy.headers[0], foreign());
        assert_eq!(without_foreign_headers(copy).headers.len(), first.headers.len() - 1);
    }

    #[test]
    fn the_error_text_is_bounded_and_printable() {
        assert_eq!(printable("a\0b\nc"), "a b c");
        assert_eq!(printable(&"é".repeat(600)).len(), 1024);
        assert_eq!(printable(&format!("x{}", "é".repeat(600))).len(), 1023);
    }

    #[test]
    fn damaged_headers_fall_back_to_the_records_own_place() {
        let header = |key: &str, value: &'static [u8]| Header { key: key.into(), value: Some(value.into()) };
        let damaged = record(vec![header(ORIGIN_TOPIC, b"\xff"), header(ATTEMPTS, b"-4"), header(DUE, b"soon")]);
        let journey = Journey::resume(&lane(), &damaged);
        assert_eq!(journey, Journey::begin(&lane(), &damaged));
        let far = Journey { due: Some(UnixMillis(i64::MAX)), ..journey };
        assert_eq!(far.due_in_tier(&damaged, Duration::from_secs(10), UnixMillis(5_000)), UnixMillis(11_000));
        assert_eq!(far.due_in_tier(&damaged, Duration::from_secs(10), UnixMillis(0)), UnixMillis(10_000));
    }
}
