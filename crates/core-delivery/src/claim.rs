//! The claim: the database's answer to "is this event new?", and its proof. Only the batch may make a proof, and
//! no key may be made of anything but an event id and a group (R-KFK-IDEM-X1, R-KFK-IDEM-X2).

use std::fmt;
use std::sync::Arc;

use crate::event::EventId;

/// The name of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerGroup(Arc<str>);

impl ConsumerGroup {
    /// Names a group.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConsumerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What must be unique: one event in one group. There is no way to make one from an offset.
///
/// ```compile_fail
/// use core_delivery::{claim::{ConsumerGroup, DedupKey}, record::Offset};
/// let _ = DedupKey::new(Offset(17), ConsumerGroup::new("billing"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DedupKey {
    event_id: EventId,
    group: ConsumerGroup,
}

impl DedupKey {
    /// The key of an event in a group.
    pub fn new(event_id: EventId, group: ConsumerGroup) -> Self {
        Self { event_id, group }
    }

    /// The event.
    pub fn event_id(&self) -> EventId {
        self.event_id
    }

    /// The group.
    pub fn group(&self) -> &ConsumerGroup {
        &self.group
    }
}

/// The database's answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The row was inserted by this unit: the first delivery.
    Fresh,
    /// The row was there: the event was handled before.
    AlreadyProcessed,
    /// The event's id lies below the group's floor and no claim of it is left: nobody can tell whether it was handled,
    /// so nothing was inserted (D-9).
    Expired,
}

/// The proof that an event was claimed in the open unit. A handler receives it and cannot make it, so there is no
/// handler without the check (R-KFK-IDEM-X1).
///
/// Tests of handlers make one with `core_delivery::testing::claimed`, behind the feature `testing`.
pub struct Claimed<E> {
    event: Arc<E>,
    history: History,
}

/// What earlier tries of an event left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// How often it was tried before, as far as its headers tell.
    pub attempts: u32,
    /// A try ended without a known outcome: the effect may have happened.
    pub in_doubt: bool,
    /// Every process died that ran it alone: it is inquired after, not performed.
    pub struck_out: bool,
}

impl<E> Claimed<E> {
    pub(crate) fn new(event: Arc<E>, history: History) -> Self {
        Self { event, history }
    }

    /// The same proof, of an event of which an earlier try may have had an effect.
    pub(crate) fn in_doubt(self) -> Self {
        Self { history: History { in_doubt: true, ..self.history }, ..self }
    }

    /// The same proof for a call that may outlive the unit.
    pub(crate) fn duplicate(&self) -> Self {
        Self { event: Arc::clone(&self.event), history: self.history }
    }

    /// What earlier tries of the event left behind.
    pub fn history(&self) -> History {
        self.history
    }

    /// The event.
    pub fn event(&self) -> &E {
        &self.event
    }
}

impl<E: fmt::Debug> fmt::Debug for Claimed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed").field("event", &self.event).field("history", &self.history).finish()
    }
}
