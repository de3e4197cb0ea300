//! Why the consumer makes no progress, for whoever asks: the readiness probe, the operator, and the
//! lanes, which start nothing while something halts them. It decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What holds the consumer up. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health {
    troubles: Arc<Mutex<BTreeMap<String, Trouble>>>,
}

#[derive(Debug)]
struct Trouble {
    reason: String,
    halts: bool,
}

impl Health {
    /// `place` is held up for this reason, until [`Health::clear`].
    pub fn report(&self, place: impl Into<String>, reason: impl Into<String>) {
        self.lock().insert(place.into(), Trouble { reason: reason.into(), halts: false });
    }

    /// The same, and no unit of work is started anywhere until [`Health::clear`].
    pub fn halt(&self, place: impl Into<String>, reason: impl Into<String>) {
        self.lock().insert(place.into(), Trouble { reason: reason.into(), halts: true });
    }

    /// Whether something forbids to start a unit of work.
    pub fn is_halted(&self) -> bool {
        self.lock().values().any(|trouble| trouble.halts)
    }

    /// `place` works again.
    pub fn clear(&self, place: &str) {
        self.lock().remove(place);
    }

    /// All reasons, each with its place; empty if nothing is held up.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().iter().map(|(place, trouble)| format!("{place}: {}", trouble.reason)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Trouble>> {
        // The map is whole at every instant, so a panic of another holder did no harm.
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
