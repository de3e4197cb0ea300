//! A question to the store outside of any unit. It is asked in a task of its own, because a query that is dropped
//! half-way would cost a pooled session; it decides nothing.

use std::future::Future;

use futures::channel::oneshot;
use futures::future::FutureExt;

use crate::ports::{Runtime, StoreError};

/// Asks, and completes with the answer. Dropping it leaves the question to its end. `name` is for diagnosis.
pub(super) fn ask<T, Q>(
    runtime: &dyn Runtime,
    name: &'static str,
    question: Q,
) -> impl Future<Output = Result<T, StoreError>> + Send + 'static + use<T, Q>
where
    T: Send + 'static,
    Q: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let (told, answer) = oneshot::channel();
    // Who asked may be gone meanwhile.
    runtime.spawn(name, async move { drop(told.send(question.await)) }.boxed());
    answer.map(|answer| {
        answer.unwrap_or_else(|oneshot::Canceled| Err(StoreError::unavailable("the question was not answered")))
    })
}
