//! One call in flight for each event id in this process: a later one joins it (trap 6 of the rules). It knows nothing
//! of what is called.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_order::EventId;
use tokio::sync::OnceCell;

/// The calls in flight. It holds no more than those, and their results only until the last of their callers has it.
#[derive(Debug)]
pub struct OneCall<T> {
    calls: Mutex<HashMap<EventId, Call<T>>>,
}

#[derive(Debug)]
struct Call<T> {
    result: Arc<OnceCell<T>>,
    callers: usize,
}

impl<T> Default for OneCall<T> {
    fn default() -> Self {
        Self { calls: Mutex::default() }
    }
}

impl<T: Clone> OneCall<T> {
    /// Makes the call, or waits for the one that is being made for the event and returns its result.
    ///
    /// Cancel safe, and a panic stays with its caller: if the caller that makes the call goes away before its end,
    /// one of those who wait makes its own.
    pub async fn run(&self, event: EventId, call: impl Future<Output = T>) -> T {
        let seat = self.sit_down(event);
        seat.result.get_or_init(|| call).await.clone()
    }

    fn sit_down(&self, event: EventId) -> Seat<'_, T> {
        let mut calls = self.lock();
        let call = calls.entry(event).or_insert_with(|| Call { result: Arc::default(), callers: 0 });
        call.callers += 1;
        Seat { calls: self, event, result: Arc::clone(&call.result) }
    }
}

impl<T> OneCall<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<EventId, Call<T>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller's part in a call.
struct Seat<'a, T> {
    calls: &'a OneCall<T>,
    event: EventId,
    result: Arc<OnceCell<T>>,
}

impl<T> Drop for Seat<'_, T> {
    /// A call that has ended is nobody's to join, also while some of its callers have yet to wake up.
    fn drop(&mut self) {
        let mut calls = self.calls.lock();
        let Some(call) = calls.get_mut(&self.event) else { return };
        if !Arc::ptr_eq(&call.result, &self.result) {
            return;
        }
        call.callers -= 1;
        if call.callers == 0 || call.result.initialized() {
            calls.remove(&self.event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::*;

    #[derive(Default)]
    struct World {
        calls: OneCall<usize>,
        made: AtomicUsize,
        go: Notify,
    }

    impl World {
        /// A caller whose call ends when it is told to, with the number of calls made so far.
        fn caller(self: &Arc<Self>, event: EventId) -> JoinHandle<usize> {
            let world = Arc::clone(self);
            tokio::spawn(async move {
                let call = async {
                    let number = world.made.fetch_add(1, Ordering::SeqCst) + 1;
                    world.go.notified().await;
                    number
                };
                world.calls.run(event, call).await
            })
        }

        async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
            let waiting = async {
                while !condition(self) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), waiting)
                .await
                .unwrap_or_else(|_| panic!("not in time: {what}"));
        }

        fn callers(&self, event: EventId) -> usize {
            self.calls.lock().get(&event).map_or(0, |call| call.callers)
        }

        fn made(&self) -> usize {
            self.made.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_second_caller_joins_and_gets_the_same_result() {
        let (world, event) = (Arc::new(World::default()), EventId::generate());
        let callers: Vec<_> = (0..5).map(|_| world.caller(event)).collect();
        world.until("all wait", |world| world.callers(event) == 5).await;
        world.go.notify_one();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), 1);
        }
        assert_eq!(world.made(), 1);
        assert!(world.calls.lock().is_empty(), "nothing is remembered");

        world.go.notify_one();
        assert_eq!(world.caller(event).await.unwrap(), 2, "a call after the end is a call of its own");
    }

    #[tokio::test]
    async fn calls_of_different_events_do_not_wait_for_each_other() {
        let world = Arc::new(World::default());
        let waiting = world.caller(EventId::generate());
        world.until("it is made", |world| world.made() == 1).await;
        assert_eq!(world.calls.run(EventId::generate(), async { 7 }).await, 7);
        world.go.notify_one();
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn when_the_first_caller_leaves_another_makes_the_call() {
        let (world, event) = (Arc::new(World::default()), EventId::generate());
        let first = world.caller(event);
        world.until("it is made", |world| world.made() == 1).await;
        let second = world.caller(event);
        world.until("both wait", |world| world.callers(event) == 2).await;
        first.abort();
        world.until("the second makes it", |world| world.made() == 2).await;
        world.go.notify_one();
        assert_eq!(second.await.unwrap(), 2);
        assert!(world.calls.lock().is_empty());
    }

    #[tokio::test]
    async fn a_panic_stays_with_its_caller() {
        let (world, event) = (Arc::new(World::default()), EventId::generate());
        let panicking = tokio::spawn({
            let world = Arc::clone(&world);
            async move {
                let call = async {
                    world.made.fetch_add(1, Ordering::SeqCst);
                    world.go.notified().await;
                    panic!("as the test has it")
                };
                world.calls.run(event, call).await
            }
        });
        world.until("it is made", |world| world.made() == 1).await;
        let second = world.caller(event);
        world.until("both wait", |world| world.callers(event) == 2).await;
        world.go.notify_one();
        assert!(panicking.await.unwrap_err().is_panic());
        world.until("the second makes it", |world| world.made() == 2).await;
        world.go.notify_one();
        assert_eq!(second.await.unwrap(), 2);
        assert!(world.calls.lock().is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_leaves_alone_leaves_nothing() {
        let calls = OneCall::<()>::default();
        let event = EventId::generate();
        for _ in 0..3 {
            tokio::select! {
                biased;
                () = calls.run(event, pending()) => panic!("it never ends"),
                () = std::future::ready(()) => {}
            }
            assert!(calls.lock().is_empty());
        }
    }
}
