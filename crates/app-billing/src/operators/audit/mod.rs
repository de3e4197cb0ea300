//! The audit: what a topic holds, held against ledger, claims and dead letters. Pure: facts are taken in one by one,
//! in the order sources, tiers, letters, claims, charges, provider, and judged at the end. Nothing here reads anything.
//!
//! The facts need not be of one instant, and the service may run. The positions are read first; then an instant is
//! taken ([`books::Instant`]), then the topics are read, and last claims and charges, of which only those count that
//! were begun until that instant. So whatever a position has passed must be found somewhere, and whatever was done must
//! be found to have been produced.

pub mod books;
pub mod compose;
pub mod topics;

mod judge;
mod report;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use core_delivery::event::{EventId, UnixMillis};

pub use report::{Finding, FindingKind, Report};

/// What is counted once, however often it was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// An event.
    Event(EventId),
    /// A record that no event could be read from, by its partition and offset in the source.
    Place(i32, i64),
}

/// Whether a group has already passed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// It lies below the position: it must have a verdict.
    Yes,
    /// It is still to be read.
    NotYet,
}

/// Since when everything of a place is still there: what is older may have gone. `None` if nothing has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Horizons {
    /// Of the records of the source.
    pub source: Option<UnixMillis>,
    /// Of the dead letters.
    pub letters: Option<UnixMillis>,
    /// Of the claims: the group's floor.
    pub claims: Option<EventId>,
}

/// A row of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// The event.
    pub event: EventId,
    /// The order.
    pub order: &'a str,
    /// Whether the provider had to hear of it: zero amounts are applied without it.
    pub is_free: bool,
    /// Whether it was completed.
    pub is_complete: bool,
}

/// Everything that is known of a unit, small enough to keep millions of them.
#[derive(Debug, Clone, Copy, Default)]
struct Trace {
    made: i64,
    deliveries: u32,
    facts: u16,
}

/// What can be known of a unit; bits of [`Trace::facts`].
mod fact {
    pub(super) const WAITS: u16 = 1;
    pub(super) const RETRIED: u16 = 1 << 1;
    pub(super) const LETTER: u16 = 1 << 2;
    pub(super) const IN_DOUBT: u16 = 1 << 3;
    pub(super) const CLAIMED: u16 = 1 << 4;
    /// The claim is older than the ledger: made by whoever consumed before, and imported.
    pub(super) const TAKEN_OVER: u16 = 1 << 5;
    pub(super) const CHARGED: u16 = 1 << 6;
    pub(super) const FREE: u16 = 1 << 7;
    pub(super) const UNFINISHED: u16 = 1 << 8;
    pub(super) const PROVIDER: u16 = 1 << 9;
}

impl Trace {
    fn is(self, fact: u16) -> bool {
        self.facts & fact != 0
    }
}

/// Takes facts in.
#[derive(Debug, Default)]
pub struct Audit {
    horizons: Horizons,
    produced: u64,
    ignored: u64,
    lag: u64,
    events: HashMap<u128, Trace>,
    places: HashMap<(i32, i64), Trace>,
    /// Claims and charges of events that the source does not hold any more, or never held.
    expired: u64,
    unexpected: report::Findings,
    twice: report::Findings,
    hasher: RandomState,
    ledger_orders: HashSet<u64>,
    provider_orders: HashSet<u64>,
    provider_was_asked: bool,
}

impl Audit {
    /// An audit of facts that are whole since these horizons.
    pub fn new(horizons: Horizons) -> Self {
        Self { horizons, ..Self::default() }
    }

    /// What the horizons turned out to be, once the source and the letters are read.
    pub fn set_horizons(&mut self, horizons: Horizons) {
        self.horizons = horizons;
    }

    /// A record of the source, written then.
    pub fn source(&mut self, unit: Unit, written: Option<UnixMillis>, passed: Passed) {
        self.produced += 1;
        let made = match unit {
            Unit::Event(id) => id.made_at(),
            Unit::Place(..) => written.unwrap_or_default(),
        };
        self.count_lag(passed);
        let trace = match unit {
            Unit::Event(id) => self.events.entry(id.as_uuid().as_u128()).or_default(),
            Unit::Place(partition, offset) => self.places.entry((partition, offset)).or_default(),
        };
        trace.made = made.0;
        trace.deliveries = trace.deliveries.saturating_add(1);
        trace.facts |= if passed == Passed::NotYet { fact::WAITS } else { 0 };
    }

    /// A record of the source that is not for this group.
    pub fn ignored(&mut self, passed: Passed) {
        self.produced += 1;
        self.ignored += 1;
        self.count_lag(passed);
    }

    /// A copy in a retry tier.
    pub fn tier(&mut self, unit: Unit, passed: Passed) {
        self.count_lag(passed);
        let waits = if passed == Passed::NotYet { fact::WAITS } else { 0 };
        self.note(unit, fact::RETRIED | waits);
    }

    /// A dead letter.
    pub fn letter(&mut self, unit: Unit, in_doubt: bool) {
        self.note(unit, fact::LETTER | if in_doubt { fact::IN_DOUBT } else { 0 });
    }

    /// A claim of the group; `taken_over` if it is older than the ledger.
    pub fn claim(&mut self, event: EventId, taken_over: bool) {
        let facts = fact::CLAIMED | if taken_over { fact::TAKEN_OVER } else { 0 };
        if !self.note(Unit::Event(event), facts) {
            self.without_record(event, FindingKind::ForeignClaim);
        }
    }

    /// A row of the ledger.
    pub fn charge(&mut self, charge: Charge<'_>) {
        if !self.ledger_orders.insert(self.hasher.hash_one(charge.order)) {
            self.twice.add(FindingKind::ChargedTwice, || format!("order {} has two rows in the ledger", charge.order));
        }
        let complete = if charge.is_complete { fact::CHARGED } else { fact::UNFINISHED };
        let facts = complete | if charge.is_free { fact::FREE } else { 0 };
        if !self.note(Unit::Event(charge.event), facts) {
            self.without_record(charge.event, FindingKind::ForeignCharge);
        }
    }

    /// The provider's record is compared as well.
    pub fn provider_was_asked(&mut self) {
        self.provider_was_asked = true;
    }

    /// A charge that moved money, as the provider recorded it. What it did for others is not ours to judge.
    pub fn provider_charge(&mut self, key: &str, order: &str) {
        let Ok(event) = key.parse() else { return };
        if !self.note(Unit::Event(event), fact::PROVIDER) {
            return;
        }
        if !self.provider_orders.insert(self.hasher.hash_one(order)) {
            self.twice.add(FindingKind::ChargedTwice, || format!("order {order} by the provider, also with key {key}"));
        }
    }

    fn count_lag(&mut self, passed: Passed) {
        self.lag += u64::from(passed == Passed::NotYet);
    }

    /// False if the source does not hold the unit.
    fn note(&mut self, unit: Unit, facts: u16) -> bool {
        let trace = match unit {
            Unit::Event(id) => self.events.get_mut(&id.as_uuid().as_u128()),
            Unit::Place(partition, offset) => self.places.get_mut(&(partition, offset)),
        };
        trace.map(|trace| trace.facts |= facts).is_some()
    }

    /// Something was done for an event that the source does not hold. If the source lost records of that age, this may
    /// have been one of them.
    fn without_record(&mut self, event: EventId, kind: FindingKind) {
        match self.horizons.source {
            Some(horizon) if event.made_at() <= horizon => self.expired += 1,
            _ => self.unexpected.add(kind, || format!("event {event}")),
        }
    }
}

#[cfg(test)]
mod tests;
