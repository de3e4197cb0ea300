//! The port of time and of tasks, so that the kernel runs on any executor and under a simulated clock.

use std::any::Any;
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

/// The message of a panic that was caught.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_tells_its_message_if_it_has_one() {
        assert_eq!(panic_text(&"static"), "static");
        assert_eq!(panic_text(&"owned".to_owned()), "owned");
        assert_eq!(panic_text(&5), "no message");
    }
}
