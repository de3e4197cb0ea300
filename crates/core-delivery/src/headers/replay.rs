//! The copy that sends a dead letter round again, and what a letter says about its last failure. Pure; which letters
//! are sent is an operator's decision.

use bytes::Bytes;

use crate::event::UnixMillis;
use crate::record::{Header, LaneId, OutgoingRecord, Record, Topic};

use super::{
    ATTEMPTS, DUE, ERROR_CLASS, ERROR_TEXT, Journey, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC, REPLAYS, text,
};

/// Why a copy was sent on, as its headers tell; `None` where a header is absent or not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastFailure<'a> {
    /// The class.
    pub class: Option<&'a str>,
    /// In words.
    pub text: Option<&'a str>,
}

/// Reads why a copy was sent on.
pub fn last_failure(record: &Record) -> LastFailure<'_> {
    LastFailure { class: text(record, ERROR_CLASS), text: text(record, ERROR_TEXT) }
}

/// The copy of a dead letter for the first retry tier: the same key, payload and headers, due at once, with its tries
/// counted from the beginning and one replay more. Where it came from, why it failed and whether it is in doubt stay
/// on it: an event that may have had its effect is not made innocent by being sent again.
///
/// `lane` is where the letter lies. The copy goes to the partition where the event was first read.
pub fn replay(letter: &Record, lane: &LaneId, tier: Topic, now: UnixMillis) -> OutgoingRecord {
    let Journey { origin, replays, .. } = Journey::resume(lane, letter);
    let written = [
        (ORIGIN_TOPIC, origin.lane.topic.to_string()),
        (ORIGIN_PARTITION, origin.lane.partition.to_string()),
        (ORIGIN_OFFSET, origin.offset.0.to_string()),
        (ATTEMPTS, "0".to_owned()),
        (DUE, now.0.to_string()),
        (REPLAYS, replays.saturating_add(1).to_string()),
    ];
    let is_replaced = |header: &Header| written.iter().any(|(key, _)| header.key == *key);
    let kept = letter.headers.iter().filter(|header| !is_replaced(header)).cloned();
    let mut headers: Vec<Header> = kept.collect();
    headers.extend(
        written.into_iter().map(|(key, value)| Header { key: key.to_owned(), value: Some(Bytes::from(value)) }),
    );
    OutgoingRecord {
        topic: tier,
        partition: origin.lane.partition,
        key: letter.key.clone(),
        payload: letter.payload.clone(),
        headers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ConsumerGroup;
    use crate::headers::{Note, Origin, copy};
    use crate::ports::ErrorClass;
    use crate::record::Offset;

    const NOW: UnixMillis = UnixMillis(90_000);

    fn lane(topic: &str, partition: i32) -> LaneId {
        LaneId { topic: Topic::new(topic), partition }
    }

    fn letter() -> Record {
        let journey = Journey {
            origin: Origin { lane: lane("orders", 4), offset: Offset(17), timestamp: Some(UnixMillis(1_000)) },
            attempts: 3,
            first_failure: Some(UnixMillis(2_000)),
            due: None,
            replays: 0,
            in_doubt: true,
        };
        let source = Record {
            offset: Offset(17),
            timestamp: Some(UnixMillis(1_000)),
            key: Some("o-1".into()),
            payload: Some("{}".into()),
            headers: vec![Header { key: "traceparent".into(), value: Some("00-1".into()) }],
            unreadable_headers: 0,
        };
        let group = ConsumerGroup::new("billing");
        let note = Note { group: &group, journey: &journey, class: &ErrorClass::IN_DOUBT, error_text: "500" };
        let sent = copy(&source, Topic::new("dlq"), 4, &note);
        Record { offset: Offset(2), timestamp: Some(UnixMillis(5_000)), headers: sent.headers, ..source }
    }

    #[test]
    fn a_replay_begins_anew_and_forgets_neither_its_origin_nor_its_doubt() {
        let letter = letter();
        let sent = replay(&letter, &lane("dlq", 4), Topic::new("tier"), NOW);
        assert_eq!((sent.topic.as_str(), sent.partition), ("tier", 4));
        assert_eq!((&sent.key, &sent.payload), (&letter.key, &letter.payload));
        let before = Journey::resume(&lane("dlq", 4), &letter);
        let arrived = Record { headers: sent.headers.clone(), offset: Offset(0), ..letter.clone() };
        let after = Journey::resume(&lane("tier", 4), &arrived);
        assert_eq!(after, Journey { attempts: 0, due: Some(NOW), replays: 1, ..before });
        assert_eq!(sent.headers[0], letter.headers[0], "foreign headers stay");
        assert_eq!(last_failure(&arrived), LastFailure { class: Some("in_doubt"), text: Some("500") });
    }

    #[test]
    fn the_headers_do_not_pile_up_over_replays() {
        let first = replay(&letter(), &lane("dlq", 4), Topic::new("tier"), NOW);
        let again = Record { headers: first.headers.clone(), ..letter() };
        let second = replay(&again, &lane("dlq", 4), Topic::new("tier"), NOW);
        assert_eq!(second.headers.len(), first.headers.len());
        let arrived = Record { headers: second.headers, ..letter() };
        assert_eq!(Journey::resume(&lane("tier", 4), &arrived).replays, 2);
    }

    #[test]
    fn a_letter_without_an_origin_keeps_its_own_place_as_one() {
        let bare = Record { headers: vec![], ..letter() };
        let sent = replay(&bare, &lane("dlq", 4), Topic::new("tier"), NOW);
        let arrived = Record { headers: sent.headers, ..letter() };
        let origin = Journey::resume(&lane("tier", 0), &arrived).origin;
        assert_eq!((origin.lane, origin.offset), (lane("dlq", 4), Offset(2)));
        assert_eq!(last_failure(&bare), LastFailure { class: None, text: None });
    }
}
