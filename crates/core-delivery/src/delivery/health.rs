//! Why the consumer makes no progress, for whoever asks: the readiness probe and the operator. It decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What holds the consumer up. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Health {
    troubles: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Health {
    /// `place` is held up for this reason, until [`Health::clear`].
    pub fn report(&self, place: impl Into<String>, reason: impl Into<String>) {
        self.lock().insert(place.into(), reason.into());
    }

    /// `place` works again.
    pub fn clear(&self, place: &str) {
        self.lock().remove(place);
    }

    /// All reasons, each with its place; empty if nothing is held up.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().iter().map(|(place, reason)| format!("{place}: {reason}")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // The map is whole at every instant, so a panic of another holder did no harm.
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
