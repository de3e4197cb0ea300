//! The audit: what the provider, the ledger and the claims say about each event, held against what was produced.
//! Pure; it collects nothing and repairs nothing.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::{self, Display},
};

use core_order::{Event, OrderConfirmed};
use uuid::Uuid;

use super::{ChargeRow, ProviderCharge, ReadRecord};

/// Everything that was written about the events, once nothing is due or in flight any more.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// The provider's own record of charges.
    pub provider: Vec<ProviderCharge>,
    /// How often the provider saw a key with another body than before.
    pub key_reuses: u64,
    /// The ledger.
    pub ledger: Vec<ChargeRow>,
    /// The claims of the group.
    pub claims: Vec<Uuid>,
    /// The dead letters of the group.
    pub dead_letters: Vec<ReadRecord>,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Defect {
    /// Where it is written.
    pub place: Place,
    /// What kind of defect it is.
    pub kind: Kind,
    /// The event, and what is wrong with it.
    pub what: String,
}

impl Display for Defect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}: {}", self.place, self.kind, self.what)
    }
}

/// Where a defect is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The provider's record: what the customers paid.
    Provider,
    /// The table `charge`.
    Ledger,
    /// The table `processed_event`.
    Claims,
    /// The dead letter topic.
    DeadLetters,
}

impl Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Provider => "provider",
            Self::Ledger => "ledger",
            Self::Claims => "claims",
            Self::DeadLetters => "dead letters",
        })
    }
}

/// The kinds of defects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An event that was produced is not there: lost.
    Missing,
    /// An event is there more than once.
    Doubled,
    /// It is there with other data than its event's.
    Wrong,
    /// Something is there that no event asked for.
    Foreign,
    /// One key came with two bodies.
    SecondBody,
    /// A reservation was committed without its charge.
    Unfinished,
    /// An event that can be charged was given up.
    DeadLetter,
}

impl Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Missing => "missing",
            Self::Doubled => "doubled",
            Self::Wrong => "wrong",
            Self::Foreign => "foreign",
            Self::SecondBody => "second body",
            Self::Unfinished => "unfinished",
            Self::DeadLetter => "dead letter",
        })
    }
}

/// Holds the books against the events that were produced, each of which is to be charged exactly once (D-1, D-10). The
/// events have distinct orders and amounts above zero. Empty is what is wanted.
#[must_use]
pub fn audit(events: &[OrderConfirmed], books: &Books) -> Vec<Defect> {
    let expected: BTreeMap<Uuid, &OrderConfirmed> = events.iter().map(|event| (event.id().as_uuid(), event)).collect();
    let mut defects = Vec::new();
    audit_provider(&expected, books, &mut defects);
    audit_ledger(&expected, books, &mut defects);
    let found = |place, kind, what| Defect { place, kind, what };
    count(&expected, Place::Claims, books.claims.iter().copied(), &mut defects);
    defects.extend(books.dead_letters.iter().map(|letter| {
        let key = letter.key.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let class = letter.header("delivery-error-class").unwrap_or("no class");
        let text = letter.header("delivery-error-text").unwrap_or_default();
        found(Place::DeadLetters, Kind::DeadLetter, format!("order {key}: {class}: {text}"))
    }));
    defects.sort();
    defects
}

fn audit_provider(expected: &BTreeMap<Uuid, &OrderConfirmed>, books: &Books, defects: &mut Vec<Defect>) {
    let mut found = |kind, what| defects.push(Defect { place: Place::Provider, kind, what });
    if books.key_reuses > 0 {
        found(
            Kind::SecondBody,
            format!("{} calls had another body than an earlier one of their key", books.key_reuses),
        );
    }
    let mut keys = Vec::with_capacity(books.provider.len());
    for charge in &books.provider {
        let key = charge.idempotency_key.as_str();
        let Some((id, event)) = key.parse().ok().and_then(|id| Some((id, expected.get(&id)?))) else {
            found(Kind::Foreign, format!("charge {} of order {} with key {key:?}", charge.id, charge.order_id));
            continue;
        };
        keys.push(id);
        let total = event.total();
        for (what, is, wanted) in [
            // The key is the event's id in its one spelling.
            ("key", key, id.to_string().as_str()),
            ("status", charge.status.as_str(), "succeeded"),
            ("order", charge.order_id.as_str(), event.order_id().as_str()),
            ("customer", charge.customer_id.as_str(), event.customer_id().as_str()),
            ("amount", charge.amount.to_string().as_str(), total.minor_units.to_string().as_str()),
            ("currency", charge.currency.as_str(), total.currency.as_str()),
        ] {
            if is != wanted {
                found(Kind::Wrong, format!("event {id}, charge {}: {what} is {is}, not {wanted}", charge.id));
            }
        }
    }
    count(expected, Place::Provider, keys, defects);
}

fn audit_ledger(expected: &BTreeMap<Uuid, &OrderConfirmed>, books: &Books, defects: &mut Vec<Defect>) {
    let names: HashMap<&str, &str> =
        books.provider.iter().map(|charge| (charge.idempotency_key.as_str(), charge.id.as_str())).collect();
    let mut found = |kind, what| defects.push(Defect { place: Place::Ledger, kind, what });
    for row in &books.ledger {
        let id = row.event_id;
        if !row.charged {
            found(Kind::Unfinished, format!("event {id}, order {}: reserved and never charged", row.order_id));
        }
        let Some(event) = expected.get(&id) else { continue };
        let total = event.total();
        let given = names.get(id.to_string().as_str()).copied();
        for (what, is, wanted) in [
            ("order", row.order_id.as_str(), event.order_id().as_str()),
            ("amount", row.amount_minor.to_string().as_str(), total.minor_units.to_string().as_str()),
            ("currency", row.currency.as_str(), total.currency.as_str()),
            // A charge that the provider reported as made before may have no name in the ledger.
            ("provider_ref", row.provider_ref.as_deref().or(given).unwrap_or("null"), given.unwrap_or("null")),
        ] {
            if is != wanted {
                found(Kind::Wrong, format!("event {id}: {what} is {is}, not {wanted}"));
            }
        }
    }
    count(expected, Place::Ledger, books.ledger.iter().map(|row| row.event_id), defects);
}

/// Each expected event once, and none other.
fn count(
    expected: &BTreeMap<Uuid, &OrderConfirmed>,
    place: Place,
    found: impl IntoIterator<Item = Uuid>,
    defects: &mut Vec<Defect>,
) {
    let mut once = HashSet::new();
    for id in found {
        let kind = match (expected.contains_key(&id), once.insert(id)) {
            (false, _) => Kind::Foreign,
            (true, false) => Kind::Doubled,
            (true, true) => continue,
        };
        defects.push(Defect { place, kind, what: format!("event {id}") });
    }
    let missing = expected.iter().filter(|(id, _)| !once.contains(*id));
    defects.extend(missing.map(|(id, event)| Defect {
        place,
        kind: Kind::Missing,
        what: format!("event {id}, order {}", event.order_id()),
    }));
}

#[cfg(test)]
mod tests;
