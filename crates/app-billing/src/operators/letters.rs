//! Dead letters as an operator sees them: what a letter tells, one entry for each origin, and which of them are
//! meant. Pure; nothing here reads a topic or writes one.

use std::collections::{BTreeSet, HashMap};

use core_delivery::event::{EventId, UnixMillis};
use core_delivery::headers::{Journey, Origin, last_failure};
use core_delivery::ports::ErrorClass;
use core_delivery::record::{LaneId, Offset, Record};
use serde_json::{Value, json};

use super::table::{or_dash, table, time};

/// What a dead letter tells, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The partition of the dead letter topic.
    pub lane: LaneId,
    /// Where it lies there.
    pub offset: Offset,
    /// When it was written.
    pub written: Option<UnixMillis>,
    /// Where the record was first read.
    pub origin: Origin,
    /// Why it was given up.
    pub class: String,
    /// The same in words.
    pub text: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it first failed.
    pub first_failure: Option<UnixMillis>,
    /// How often it was sent round again before.
    pub replays: u32,
    /// A try ended without a known outcome.
    pub in_doubt: bool,
    /// The event's id, if the payload tells one.
    pub event_id: Option<EventId>,
    /// The order's id, if the payload tells one.
    pub order_id: Option<String>,
    /// How many letters this origin has; this is the last of them.
    pub letters: usize,
}

impl Letter {
    /// Reads a letter. Whatever is damaged in it, it is shown.
    pub fn read(record: &Record, lane: &LaneId) -> Self {
        let Journey { origin, attempts, first_failure, replays, in_doubt, .. } = Journey::resume(lane, record);
        let failure = last_failure(record);
        let payload = record.payload.as_deref().and_then(|payload| serde_json::from_slice::<Value>(payload).ok());
        let field = |name| payload.as_ref()?.get(name)?.as_str();
        Self {
            lane: lane.clone(),
            offset: record.offset,
            written: record.timestamp,
            origin,
            class: failure.class.unwrap_or("unknown").to_owned(),
            text: failure.text.unwrap_or_default().to_owned(),
            attempts,
            first_failure,
            replays,
            in_doubt,
            event_id: field("event_id").and_then(|id| id.parse().ok()),
            order_id: field("order_id").map(str::to_owned),
            letters: 1,
        }
    }

    /// Whether the money may have moved for it.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt || self.class == ErrorClass::IN_DOUBT.as_str()
    }
}

/// The last letter of each origin. A second one appears when a crash came between its acknowledgement and the commit
/// of the offset, or when a replay failed as well.
#[derive(Debug, Default)]
pub struct Letters(HashMap<(LaneId, Offset), Letter>);

impl Letters {
    /// Takes a letter in.
    pub fn add(&mut self, letter: Letter) {
        let place = (letter.origin.lane.clone(), letter.origin.offset);
        let Some(known) = self.0.get_mut(&place) else {
            self.0.insert(place, letter);
            return;
        };
        let letters = known.letters + 1;
        if (known.written, known.offset) <= (letter.written, letter.offset) {
            *known = letter;
        }
        known.letters = letters;
    }

    /// Those that are meant, the oldest first.
    pub fn selected(self, selection: &Selection) -> Vec<Letter> {
        let mut letters: Vec<Letter> = self.0.into_values().filter(|letter| selection.takes(letter)).collect();
        letters.sort_by(|one, other| {
            (one.written, &one.lane, one.offset).cmp(&(other.written, &other.lane, other.offset))
        });
        letters
    }
}

/// Which letters are meant: those that fit everything that is given. Nothing given means every letter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// One of these events; empty is any.
    pub ids: BTreeSet<EventId>,
    /// One of these classes; empty is any.
    pub classes: BTreeSet<String>,
    /// Written at this instant or later.
    pub since: Option<UnixMillis>,
    /// Written before this instant.
    pub until: Option<UnixMillis>,
}

impl Selection {
    /// Whether nothing is given.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    fn takes(&self, letter: &Letter) -> bool {
        let any_id = self.ids.is_empty() || letter.event_id.is_some_and(|id| self.ids.contains(&id));
        let any_class = self.classes.is_empty() || self.classes.contains(&letter.class);
        let late_enough = self.since.is_none_or(|since| letter.written.is_some_and(|written| written >= since));
        let early_enough = self.until.is_none_or(|until| letter.written.is_some_and(|written| written < until));
        any_id && any_class && late_enough && early_enough
    }
}

/// The longest error text in a table; JSON has all of it.
const SHOWN_TEXT: usize = 80;

/// A row for each letter.
pub fn to_table(letters: &[Letter]) -> String {
    let rows: Vec<Vec<String>> = letters
        .iter()
        .map(|letter| {
            vec![
                format!("{}@{}", letter.origin.lane, letter.origin.offset.0),
                letter.class.clone(),
                or_dash(letter.event_id),
                or_dash(letter.order_id.as_deref()),
                letter.attempts.to_string(),
                time(letter.first_failure),
                letter.replays.to_string(),
                format!("{}@{}", letter.lane.partition, letter.offset.0),
                shortened(&letter.text),
            ]
        })
        .collect();
    let headings = ["ORIGIN", "CLASS", "EVENT", "ORDER", "ATTEMPTS", "FIRST FAILURE", "REPLAYS", "LETTER", "ERROR"];
    table(&headings, &rows)
}

/// The same for a script.
pub fn to_json(letters: &[Letter]) -> Value {
    let millis = |at: Option<UnixMillis>| at.map(|at| at.0);
    let entry = |letter: &Letter| {
        json!({
            "origin": {
                "topic": letter.origin.lane.topic.as_str(),
                "partition": letter.origin.lane.partition,
                "offset": letter.origin.offset.0,
                "timestamp_ms": millis(letter.origin.timestamp),
            },
            "class": letter.class,
            "in_doubt": letter.is_in_doubt(),
            "event_id": letter.event_id.map(|id| id.to_string()),
            "order_id": letter.order_id,
            "attempts": letter.attempts,
            "first_failure_ms": millis(letter.first_failure),
            "error": letter.text,
            "replays": letter.replays,
            "written_ms": millis(letter.written),
            "partition": letter.lane.partition,
            "offset": letter.offset.0,
            "letters": letter.letters,
        })
    };
    letters.iter().map(entry).collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
