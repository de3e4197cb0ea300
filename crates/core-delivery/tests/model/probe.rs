//! The events of the model, and the places where their records lie. A record says in its payload where it lies and in
//! which assignment it was delivered, so that whatever the kernel does with it can be traced back to it.

use core_delivery::event::{Event, EventId, UnixMillis};
use core_delivery::ports::{DecodeError, Decoded, ErrorClass, EventDecoder, IgnoreReason};
use core_delivery::record::{LaneId, Record, Topic};
use std::time::Duration;

use crate::executor::{Life, START};

/// The source, the tiers, the dead letters.
pub const TOPICS: [&str; 4] = ["orders", "retry.2s", "retry.5s", "dlq"];
pub const PARTITIONS: usize = 2;
/// The lanes that are consumed come first, the dead letters last.
pub const LANES: usize = TOPICS.len() * PARTITIONS;
pub const CONSUMED: usize = LANES - PARTITIONS;

/// A lane by its number.
pub type LaneNo = usize;

pub fn lane_id(lane: LaneNo) -> LaneId {
    LaneId { topic: Topic::new(TOPICS[lane / PARTITIONS]), partition: (lane % PARTITIONS) as i32 }
}

pub fn lane_no(topic: &Topic, partition: i32) -> Option<LaneNo> {
    let topic = TOPICS.iter().position(|name| *name == topic.as_str())?;
    Some(topic * PARTITIONS + usize::try_from(partition).ok().filter(|partition| *partition < PARTITIONS)?)
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub lane: LaneNo,
    pub offset: i64,
}

/// What an event does to those who handle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// The store refuses its line.
    Poison,
    /// The handler refuses it before it is performed.
    Refused,
    /// Not for this consumer.
    Foreign,
    /// Cannot be read.
    Broken,
    /// Its id was made an hour ahead.
    Future,
    /// Whoever performs it dies.
    Deadly,
}

pub const KINDS: [Kind; 7] =
    [Kind::Plain, Kind::Poison, Kind::Refused, Kind::Foreign, Kind::Broken, Kind::Future, Kind::Deadly];

/// What a record carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number of its event: records with the same one are duplicates.
    pub number: u32,
    pub kind: usize,
    pub key: u8,
}

impl Content {
    pub fn kind(self) -> Kind {
        KINDS[self.kind]
    }

    pub fn event(self) -> EventId {
        event_id(self.number, self.kind())
    }
}

const AHEAD: Duration = Duration::from_secs(3_600);

fn event_id(number: u32, kind: Kind) -> EventId {
    let made = START.plus(Duration::from_millis(number.into()));
    EventId::at(if kind == Kind::Future { made.plus(AHEAD) } else { made }, [0; 10])
}

/// The number of an event, from its id.
pub fn number_of(event: EventId) -> u64 {
    let UnixMillis(made) = event.made_at();
    (made - START.0).unsigned_abs() % AHEAD.as_millis() as u64
}

/// A record's payload, told apart again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub id: EventId,
    pub key: String,
    pub content: Content,
    pub place: Place,
    pub epoch: u64,
    pub life: Life,
}

impl Event for Probe {
    fn id(&self) -> EventId {
        self.id
    }
    fn key(&self) -> &str {
        &self.key
    }
}

pub fn payload(content: Content, place: Place, epoch: u64, life: Life) -> String {
    let (Content { number, kind, key }, Place { lane, offset }) = (content, place);
    format!("{number} {kind} {key} {lane} {offset} {epoch} {life}")
}

pub fn parse(payload: Option<&[u8]>) -> Option<Probe> {
    let text = std::str::from_utf8(payload?).ok()?;
    let mut numbers = text.split(' ').map_while(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next();
    let content = Content { number: next()? as u32, kind: next()? as usize, key: next()? as u8 };
    let place = Place { lane: next()? as usize, offset: next()? as i64 };
    let key = char::from(b'a' + content.key).to_string();
    Some(Probe { id: content.event(), key, content, place, epoch: next()?, life: next()? as u32 })
}

pub struct ProbeDecoder;

impl EventDecoder<Probe> for ProbeDecoder {
    fn decode(&self, record: &Record) -> Decoded<Probe> {
        let probe = parse(record.payload.as_deref()).expect("the model wrote it");
        match probe.content.kind() {
            Kind::Foreign => Decoded::Ignored(IgnoreReason::OtherType),
            Kind::Broken => {
                let reason = "a broken record".to_owned();
                Decoded::Undecodable(DecodeError { class: ErrorClass::UNDECODABLE, reason })
            }
            _ => Decoded::Event(probe),
        }
    }
}
