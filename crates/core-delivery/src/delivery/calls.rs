//! How many calls may be in flight, over all lanes: fewer when the other side says that it is too much, more again
//! while it does not (additive increase, multiplicative decrease).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_lock::{Semaphore, SemaphoreGuardArc};

/// The limit. Clones share it.
#[derive(Debug, Clone)]
pub struct Calls {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    most: usize,
    limit: usize,
    /// Permits that are in use and will not be given back.
    excess: usize,
    successes: usize,
}

/// The right to make one call.
#[derive(Debug)]
pub(super) struct Permit(SemaphoreGuardArc);

/// What the other side said of the load when it answered a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Nothing: it can bear it.
    Bearable,
    /// It asked for a pause.
    TooMuch,
}

impl Calls {
    /// At most this many calls at a time; at least one.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = State { most, limit: most, excess: 0, successes: 0 };
        Self { permits: Arc::new(Semaphore::new(most)), state: Arc::new(Mutex::new(state)) }
    }

    /// How many calls may be in flight now.
    pub fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Waits for the right to make one call. Cancel safe.
    pub(super) async fn acquire(&self) -> Permit {
        Permit(self.permits.acquire_arc().await)
    }

    /// A call has ended.
    pub(super) fn ended(&self, Permit(permit): Permit, load: Load) {
        let mut state = self.lock();
        if load == Load::TooMuch {
            let lower = (state.limit / 2).max(1);
            state.excess += state.limit - lower;
            state.limit = lower;
            state.successes = 0;
        } else if state.limit < state.most {
            state.successes += 1;
            if state.successes >= state.limit {
                state.successes = 0;
                state.limit += 1;
                match state.excess.checked_sub(1) {
                    Some(less) => state.excess = less,
                    None => self.permits.add_permits(1),
                }
            }
        }
        if let Some(less) = state.excess.checked_sub(1) {
            state.excess = less;
            permit.forget();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The numbers fit together at every instant, so a panic of another holder did no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn acquire(calls: &Calls) -> Option<Permit> {
        calls.acquire().now_or_never()
    }

    #[test]
    fn it_halves_when_throttled_and_grows_back_one_by_one() {
        let calls = Calls::new(8);
        calls.ended(acquire(&calls).expect("free"), Load::TooMuch);
        assert_eq!(calls.limit(), 4);
        let held: Vec<_> = std::iter::from_fn(|| acquire(&calls)).collect();
        assert_eq!(held.len(), 7, "permits that nobody used are withdrawn as they come back");
        held.into_iter().for_each(|permit| calls.ended(permit, Load::Bearable));
        let held: Vec<_> = std::iter::from_fn(|| acquire(&calls)).collect();
        assert_eq!(held.len(), calls.limit());
        assert_eq!(calls.limit(), 5, "seven successes at a limit of four");
    }

    #[test]
    fn one_call_is_always_allowed() {
        let calls = Calls::new(2);
        for _ in 0..5 {
            calls.ended(acquire(&calls).expect("one is left"), Load::TooMuch);
        }
        assert_eq!(calls.limit(), 1);
        assert!(acquire(&calls).is_some());
    }

    proptest! {
        /// However it goes up and down, once everything has come back exactly `limit` permits are there.
        #[test]
        fn no_permit_is_lost_or_made_up(steps in prop::collection::vec((any::<bool>(), any::<bool>()), 0..300)) {
            let calls = Calls::new(16);
            let mut held = vec![];
            for (take, throttled) in steps {
                if take {
                    held.extend(acquire(&calls));
                } else if let Some(permit) = held.pop() {
                    calls.ended(permit, if throttled { Load::TooMuch } else { Load::Bearable });
                }
                prop_assert!((1..=16).contains(&calls.limit()));
            }
            held.into_iter().for_each(|permit| calls.ended(permit, Load::TooMuch));
            // What was not in use when the limit fell is withdrawn at its next use.
            for _ in 0..64 {
                if let Some(permit) = acquire(&calls) {
                    calls.ended(permit, Load::TooMuch);
                }
            }
            let free: Vec<_> = std::iter::from_fn(|| acquire(&calls)).collect();
            prop_assert_eq!(free.len(), calls.limit());
        }
    }
}
