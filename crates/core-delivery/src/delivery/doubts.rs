//! Events that stay where they are although a try of theirs had an unknown outcome: no header tells of it yet. Kept for
//! all lanes of the process, so that a lane which starts anew does not forget. A crash forgets, as it forgets that there
//! was a call at all.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::EventId;
use crate::ports::Effect;

/// The set. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Doubts(Arc<Mutex<HashSet<EventId>>>);

impl Doubts {
    /// A try of the event ended with this effect, and the event stays where it is.
    pub(super) fn note(&self, event: EventId, effect: Effect) {
        match effect {
            Effect::Unknown => {
                self.lock().insert(event);
            }
            Effect::Never => {
                self.lock().remove(&event);
            }
            Effect::None => {}
        }
    }

    /// Whether a try of the event had an unknown outcome.
    pub(super) fn contains(&self, event: EventId) -> bool {
        self.lock().contains(&event)
    }

    /// The event has its outcome, or its copy will carry the doubt; whether there was one.
    pub(super) fn take(&self, event: EventId) -> bool {
        self.lock().remove(&event)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<EventId>> {
        // The set is whole at every instant, so a panic of another holder did no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
