//! The port of time and of tasks, so that the kernel runs on any executor and under a simulated clock.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::event::UnixMillis;

/// Time and tasks.
pub trait Runtime: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> UnixMillis;

    /// Completes after the duration, measured on a clock that never jumps.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a task to its end, whatever becomes of the caller. `name` is for diagnosis.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);
}
