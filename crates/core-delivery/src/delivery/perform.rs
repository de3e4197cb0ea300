//! The calls of one unit: side by side over keys, in delivered order within a key (D-6), bounded over all lanes, and a
//! panic of one harms no other. A call that takes too long is handed on, so that it does not hold the others. Nothing
//! here touches the store.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{BoxFuture, FutureExt};
use futures::select_biased;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::claim::Claimed;
use crate::event::{Event, EventId};
use crate::ports::{Effect, ErrorClass, EventHandler, HandlerError, Runtime, panic_text};

use super::calls::{Calls, Load};
use super::verdict::{Failure, Halt, Retry};

/// What became of a call.
pub(super) enum Performed<R> {
    /// It succeeded.
    Done(R),
    /// It failed; the event goes on its way.
    Failed(Failure),
    /// Intake must stop: why is told by the call that met it, and `None` by those that were not made.
    Halted(Option<Halt>),
}

/// A call that outlived its unit. It owns its data; the claim of its event was released.
pub struct Straggler<R> {
    pub(super) event: EventId,
    pub(super) key: String,
    pub(super) outcome: BoxFuture<'static, Performed<R>>,
}

impl<R> std::fmt::Debug for Straggler<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Straggler").field("event", &self.event).finish_non_exhaustive()
    }
}

/// What became of the calls of a unit.
pub(super) struct Performance<E, R> {
    /// The calls that have ended.
    pub(super) ended: Vec<(Claimed<E>, Performed<R>)>,
    /// The calls that go on.
    pub(super) stragglers: Vec<Straggler<R>>,
    /// The proofs of everything that has not ended: the stragglers, and what was not started.
    pub(super) open: Vec<Claimed<E>>,
}

/// One event's call. Dropped before it was started, it leaves nothing.
struct Call<R> {
    chain: usize,
    event: EventId,
    started: Arc<AtomicBool>,
    outcome: BoxFuture<'static, Performed<R>>,
}

/// Performs the events, which are in delivered order. Returns when every call has ended, or at the deadline with what
/// has not.
pub(super) async fn perform<E, U, H>(
    handler: &Arc<H>,
    calls: &Calls,
    runtime: &Arc<dyn Runtime>,
    deadline: Duration,
    events: Vec<Claimed<E>>,
) -> Performance<E, H::Receipt>
where
    E: Event,
    U: Send,
    H: EventHandler<E, U>,
{
    let mut performance = Performance { ended: Vec::with_capacity(events.len()), stragglers: vec![], open: vec![] };
    let halted = Arc::new(AtomicBool::new(false));
    // The event that each chain is at comes first in it, until its call has ended.
    let mut chains = chains(events);
    let mut running = FuturesUnordered::new();
    let begin = |chain: usize, claimed: &Claimed<E>| {
        let started = Arc::new(AtomicBool::new(false));
        let outcome = call(handler, calls, &halted, &started, claimed);
        Call { chain, event: claimed.event().id(), started, outcome }
    };
    for (index, chain) in chains.iter().enumerate() {
        running.push(begin(index, chain.front().expect("a chain has an event")));
    }
    let mut late = runtime.sleep(deadline).fuse();
    loop {
        let (index, performed) = select_biased! {
            ended = running.next() => match ended {
                Some(ended) => ended,
                None => return performance,
            },
            () = late => break,
        };
        let chain = &mut chains[index];
        let claimed = chain.pop_front().expect("the chain's first call has ended");
        performance.ended.push((claimed, performed));
        if let Some(next) = chain.front() {
            running.push(begin(index, next));
        }
    }
    for call in running.into_iter().filter(|call| call.started.load(Ordering::Acquire)) {
        let key = chains[call.chain].front().map_or_else(String::new, |claimed| claimed.event().key().to_owned());
        performance.stragglers.push(hand_on(runtime, call.event, key, call.outcome));
    }
    performance.open = chains.into_iter().flatten().collect();
    performance
}

impl<R> Future for Call<R> {
    type Output = (usize, Performed<R>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let chain = self.chain;
        self.outcome.poll_unpin(context).map(|performed| (chain, performed))
    }
}

/// Lets a call run on in a task of its own: it goes on while its lane is busy, and while nobody waits for it any more.
fn hand_on<R: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    event: EventId,
    key: String,
    call: BoxFuture<'static, Performed<R>>,
) -> Straggler<R> {
    let (told, outcome) = oneshot::channel();
    // The lane may be gone when it ends.
    runtime.spawn("straggling call", async move { drop(told.send(call.await)) }.boxed());
    let outcome = outcome.map(move |outcome| {
        outcome.unwrap_or_else(|oneshot::Canceled| Performed::Failed(panicked(event, &"the call was not finished")))
    });
    Straggler { event, key, outcome: outcome.boxed() }
}

/// The events of each key, in delivered order.
fn chains<E: Event>(events: Vec<Claimed<E>>) -> Vec<VecDeque<Claimed<E>>> {
    let mut chains: Vec<VecDeque<Claimed<E>>> = Vec::with_capacity(events.len());
    let mut by_key: HashMap<String, usize> = HashMap::with_capacity(events.len());
    for claimed in events {
        let chain = *by_key.entry(claimed.event().key().to_owned()).or_insert(chains.len());
        match chains.get_mut(chain) {
            Some(chain) => chain.push_back(claimed),
            None => chains.push(VecDeque::from([claimed])),
        }
    }
    chains
}

/// The call of one event, which owns all that it needs and outlives the unit if it must.
fn call<E, U, H>(
    handler: &Arc<H>,
    calls: &Calls,
    halted: &Arc<AtomicBool>,
    started: &Arc<AtomicBool>,
    claimed: &Claimed<E>,
) -> BoxFuture<'static, Performed<H::Receipt>>
where
    E: Event,
    U: Send,
    H: EventHandler<E, U>,
{
    let (handler, calls, claimed) = (Arc::clone(handler), calls.clone(), claimed.duplicate());
    let (halted, started) = (Arc::clone(halted), Arc::clone(started));
    async move {
        let permit = calls.acquire().await;
        started.store(true, Ordering::Release);
        if halted.load(Ordering::Relaxed) {
            calls.ended(permit, Load::Bearable);
            return Performed::Halted(None);
        }
        let call = if claimed.history().struck_out { handler.inquire(&claimed) } else { handler.perform(&claimed) };
        let result = AssertUnwindSafe(call).catch_unwind().await;
        let load = match &result {
            Ok(Err(HandlerError::Transient { retry_after: Some(_), .. })) => Load::TooMuch,
            _ => Load::Bearable,
        };
        calls.ended(permit, load);
        match result {
            Ok(Ok(receipt)) => Performed::Done(receipt),
            Ok(Err(error)) => match Failure::of_handler(error) {
                Ok(failure) => Performed::Failed(failure),
                Err(halt) => {
                    halted.store(true, Ordering::Relaxed);
                    Performed::Halted(Some(halt))
                }
            },
            Err(panic) => Performed::Failed(panicked(claimed.event().id(), &*panic)),
        }
    }
    .boxed()
}

fn panicked(event: EventId, panic: &(dyn std::any::Any + Send)) -> Failure {
    let reason = panic_text(panic);
    tracing::error!(event_id = %event, reason, "handler panicked");
    Failure {
        class: ErrorClass::RETRIES_EXHAUSTED,
        text: format!("the handler panicked: {reason}"),
        retry: Retry::After(None),
        effect: Effect::Unknown,
    }
}
