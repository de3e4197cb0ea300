//! Why the consumer makes no progress, for whoever asks: the readiness probe, the operator, and the
//! lanes, which start nothing while something halts them. It decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::{Assignment, Epoch};

/// What is held up: a part of the process by its name, or a lane in one of its epochs. A lane that was lost and came
/// back is another place: what is left of its former epoch clears nothing of the new one (D-5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    name: String,
    epoch: Option<Epoch>,
}

impl Place {
    /// Something that belongs to this assignment.
    pub fn of(assignment: &Assignment, name: impl Into<String>) -> Self {
        Self { name: name.into(), epoch: Some(assignment.epoch) }
    }
}

impl From<&str> for Place {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), epoch: None }
    }
}

impl From<&Assignment> for Place {
    fn from(assignment: &Assignment) -> Self {
        Self::of(assignment, assignment.lane.to_string())
    }
}

/// The name, for people.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What holds the consumer up. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health {
    troubles: Arc<Mutex<BTreeMap<Place, Trouble>>>,
}

#[derive(Debug)]
struct Trouble {
    reason: String,
    halts: bool,
}

impl Health {
    /// `place` is held up for this reason, until [`Health::clear`].
    pub fn report(&self, place: impl Into<Place>, reason: impl Into<String>) {
        self.lock().insert(place.into(), Trouble { reason: reason.into(), halts: false });
    }

    /// The same, and no unit of work is started anywhere until [`Health::clear`].
    pub fn halt(&self, place: impl Into<Place>, reason: impl Into<String>) {
        self.lock().insert(place.into(), Trouble { reason: reason.into(), halts: true });
    }

    /// Whether something forbids to start a unit of work.
    pub fn is_halted(&self) -> bool {
        self.lock().values().any(|trouble| trouble.halts)
    }

    /// `place` works again.
    pub fn clear(&self, place: impl Into<Place>) {
        self.lock().remove(&place.into());
    }

    /// All reasons, each with its place; empty if nothing is held up.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().iter().map(|(place, trouble)| format!("{place}: {}", trouble.reason)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Trouble>> {
        // The map is whole at every instant, so a panic of another holder did no harm.
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{LaneId, Topic};

    #[test]
    fn what_is_left_of_a_former_epoch_clears_nothing_of_the_new_one() {
        let in_epoch =
            |epoch| Assignment { lane: LaneId { topic: Topic::new("orders"), partition: 3 }, epoch: Epoch(epoch) };
        let (health, former, new) = (Health::default(), in_epoch(1), in_epoch(2));
        health.report(&former, "the database is away");
        health.report(&new, "the database is away");
        health.report(Place::of(&new, "copies of orders/3"), "no broker");
        health.clear(&former);
        health.clear(Place::of(&former, "copies of orders/3"));
        assert_eq!(health.reasons(), ["copies of orders/3: no broker", "orders/3: the database is away"]);
        health.clear(&new);
        health.clear(Place::of(&new, "copies of orders/3"));
        assert_eq!(health.reasons(), Vec::<String>::new());
    }

    #[test]
    fn only_a_halt_forbids_to_start_units_and_only_until_it_is_cleared() {
        let health = Health::default();
        health.report("clock", "unknown");
        assert!(!health.is_halted());
        health.halt("clock", "behind");
        assert!(health.is_halted());
        health.clear("clock");
        assert!(!health.is_halted());
    }
}
