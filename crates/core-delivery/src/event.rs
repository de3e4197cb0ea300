//! What an event is and how it is identified. Nothing here may know where an event came from: an id made from
//! an offset would be no id (R-KFK-IDEM-X2).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::{Uuid, Variant};

/// A business event that a topic carries.
pub trait Event: Send + Sync + 'static {
    /// The event's own id, made once by its producer (R-KFK-IDEM-1).
    fn id(&self) -> EventId;

    /// The key whose events keep their order: the record key on the topic.
    fn key(&self) -> &str;
}

/// The id of an event: a UUID version 7, and nothing else can become one (R-KFK-IDEM-1).
///
/// A v7 id carries the time it was made, so ids of one period lie side by side and the age of an event can be
/// read from its id alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Uuid);

impl EventId {
    /// Makes a new id from this machine's clock and randomness. For producers: a consumer never makes one.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// Makes the id of the given instant with the given random part.
    pub fn at(instant: UnixMillis, random: [u8; 10]) -> Self {
        let millis = u64::try_from(instant.0).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// The smallest id of an instant: the lower bound of everything made at or after it.
    pub fn first_at(instant: UnixMillis) -> Self {
        Self::at(instant, [0; 10])
    }

    /// When the id was made, by its producer's clock, in milliseconds.
    pub fn made_at(self) -> UnixMillis {
        let value = self.0.as_u128() >> 80;
        UnixMillis(i64::try_from(value).expect("a v7 timestamp has 48 bits"))
    }

    /// The id as a plain UUID, for storage.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl TryFrom<Uuid> for EventId {
    type Error = InvalidEventId;

    fn try_from(uuid: Uuid) -> Result<Self, InvalidEventId> {
        if uuid.is_nil() {
            return Err(InvalidEventId::Nil);
        }
        if uuid.is_max() {
            return Err(InvalidEventId::Max);
        }
        if uuid.get_variant() != Variant::RFC4122 {
            return Err(InvalidEventId::Variant);
        }
        match uuid.get_version_num() {
            7 => Ok(Self(uuid)),
            version => Err(InvalidEventId::Version(version)),
        }
    }
}

/// Accepts every spelling of a UUID (upper case, braces, `urn:uuid:`): they are one id.
impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        Uuid::parse_str(text).map_err(|_| InvalidEventId::Syntax)?.try_into()
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({self})")
    }
}

/// Why a text or a UUID is not an event id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventId {
    /// Not a UUID at all.
    #[error("is not a UUID")]
    Syntax,
    /// The nil UUID.
    #[error("is the nil UUID, expected version 7")]
    Nil,
    /// The max UUID.
    #[error("is the max UUID, expected version 7")]
    Max,
    /// Not the variant of RFC 9562.
    #[error("is not of the RFC 9562 variant")]
    Variant,
    /// Another version than 7.
    #[error("is a UUID of version {0}, expected version 7")]
    Version(usize),
}

/// An instant in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// This instant moved into the future; saturates.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// This instant moved into the past; saturates.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// How long it is from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<EventId, InvalidEventId> {
        text.parse()
    }

    #[test]
    fn only_version_7_becomes_an_event_id() {
        assert_eq!(parse("00000000-0000-0000-0000-000000000000"), Err(InvalidEventId::Nil));
        assert_eq!(parse("ffffffff-ffff-ffff-ffff-ffffffffffff"), Err(InvalidEventId::Max));
        assert_eq!(parse("c232ab00-9414-11ec-b3c8-9f6bdeced846"), Err(InvalidEventId::Version(1)));
        assert_eq!(parse("919108f7-52d1-4320-9bac-f847db4148a8"), Err(InvalidEventId::Version(4)));
        assert_eq!(parse("017f22e2-79b0-7cc3-08c4-dc0c0c07398f"), Err(InvalidEventId::Variant));
        assert_eq!(parse("order-17"), Err(InvalidEventId::Syntax));
        assert!(parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").is_ok());
    }

    #[test]
    fn every_spelling_is_the_same_id() {
        let plain = parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("valid");
        for spelling in [
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
            "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "017f22e279b07cc398c4dc0c0c07398f",
        ] {
            assert_eq!(parse(spelling), Ok(plain));
        }
    }

    #[test]
    fn an_id_carries_the_time_it_was_made() {
        // The example of RFC 9562, appendix A.6: Tuesday, 22 February 2022 2:22:22.00 PM GMT-05:00.
        let id = parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("valid");
        assert_eq!(id.made_at(), UnixMillis(1_645_557_742_000));
        assert_eq!(EventId::at(UnixMillis(5), [7; 10]).made_at(), UnixMillis(5));
        assert!(EventId::first_at(UnixMillis(5)) <= EventId::at(UnixMillis(5), [0; 10]));
        assert!(EventId::at(UnixMillis(4), [255; 10]) < EventId::first_at(UnixMillis(5)));
    }
}
