//! The calls of one unit: side by side over keys, in delivered order within a key (D-6), bounded over all lanes,
//! and a panic of one harms no other. Nothing here touches the store.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_lock::Semaphore;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::claim::Claimed;
use crate::event::Event;
use crate::ports::{Effect, ErrorClass, EventHandler};

use super::verdict::{Failure, Retry};

/// What became of a call.
pub(super) enum Performed<R> {
    /// It succeeded.
    Done(R),
    /// It failed; the event goes on its way.
    Failed(Failure),
    /// Intake must stop: the reason is told by the call that met it, and `None` by those that were not made.
    Halted(Option<String>),
}

/// One event of a unit: its proof, and what became of it.
type Called<E, R> = (Claimed<E>, Performed<R>);

/// The running calls of one key. It owns its data, so that it can outlive the unit that started it.
type Chain<E, R> = BoxFuture<'static, Vec<Called<E, R>>>;

/// Performs the events, which are in delivered order, and returns when every call has ended.
pub(super) async fn perform<E, U, H>(
    handler: &Arc<H>,
    calls: &Arc<Semaphore>,
    events: Vec<Claimed<E>>,
) -> Vec<Called<E, H::Receipt>>
where
    E: Event,
    U: Send,
    H: EventHandler<E, U>,
{
    let halted = Arc::new(AtomicBool::new(false));
    let mut results = Vec::with_capacity(events.len());
    let mut running: FuturesUnordered<Chain<E, H::Receipt>> = chains(events)
        .into_iter()
        .map(|chain| {
            let (handler, calls, halted) = (Arc::clone(handler), Arc::clone(calls), Arc::clone(&halted));
            async move {
                let mut done = Vec::with_capacity(chain.len());
                for claimed in chain {
                    let performed = call(&*handler, &calls, &halted, &claimed).await;
                    done.push((claimed, performed));
                }
                done
            }
            .boxed()
        })
        .collect();
    while let Some(chain) = running.next().await {
        results.extend(chain);
    }
    results
}

/// The events of each key, in delivered order.
fn chains<E: Event>(events: Vec<Claimed<E>>) -> Vec<Vec<Claimed<E>>> {
    let mut chains: Vec<Vec<Claimed<E>>> = Vec::with_capacity(events.len());
    let mut by_key: HashMap<String, usize> = HashMap::with_capacity(events.len());
    for claimed in events {
        let chain = *by_key.entry(claimed.event().key().to_owned()).or_insert(chains.len());
        match chains.get_mut(chain) {
            Some(chain) => chain.push(claimed),
            None => chains.push(vec![claimed]),
        }
    }
    chains
}

async fn call<E, U, H>(
    handler: &H,
    calls: &Semaphore,
    halted: &AtomicBool,
    claimed: &Claimed<E>,
) -> Performed<H::Receipt>
where
    E: Event,
    U: Send,
    H: EventHandler<E, U>,
{
    let _permit = calls.acquire().await;
    if halted.load(Ordering::Relaxed) {
        return Performed::Halted(None);
    }
    match AssertUnwindSafe(handler.perform(claimed)).catch_unwind().await {
        Ok(Ok(receipt)) => Performed::Done(receipt),
        Ok(Err(error)) => match Failure::of_handler(error) {
            Ok(failure) => Performed::Failed(failure),
            Err(reason) => {
                halted.store(true, Ordering::Relaxed);
                Performed::Halted(Some(reason))
            }
        },
        Err(panic) => {
            let reason = panic_text(&*panic);
            tracing::error!(event_id = %claimed.event().id(), reason, "handler panicked");
            Performed::Failed(Failure {
                class: ErrorClass::RETRIES_EXHAUSTED,
                text: format!("the handler panicked: {reason}"),
                retry: Retry::After(None),
                effect: Effect::Unknown,
            })
        }
    }
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
