//! The port of the application: what is done with a claimed event. The handler can neither claim nor commit; it
//! only ever sees proofs.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::claim::Claimed;
use crate::event::Event;

use super::StoreError;

/// Handles events of type `E` in units of type `U`.
///
/// `perform` is the outside world: it runs concurrently over keys, in delivered order within a key (D-6), and may
/// run again for the same event after a crash. `admit`, `retract` and `record` are the application's own tables,
/// in the unit that holds the claim, each called at most once a unit with everything that concerns it.
///
/// ```
/// use async_trait::async_trait;
/// use core_delivery::{claim::Claimed, event::Event, ports::{EventHandler, HandlerError, StoreError}};
///
/// struct Count;
///
/// #[async_trait]
/// impl<E: Event, U: Send> EventHandler<E, U> for Count {
///     type Receipt = ();
///     async fn perform(&self, _event: &Claimed<E>) -> Result<(), HandlerError> {
///         Ok(())
///     }
///     async fn record(&self, _unit: &mut U, _done: &[(Claimed<E>, ())]) -> Result<(), StoreError> {
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle claimed events of type `{E}` in units of type `{U}`",
    label = "not an `EventHandler<{E}, {U}>`",
    note = "an event is handled only with the proof of its claim: implement `EventHandler<{E}, {U}>` and take `&Claimed<{E}>` in `perform`; the kernel claims the event and passes the proof",
    note = "what the unit `{U}` can write for you is your own port on it: bound your impl by that port, as in `impl<U: BillingTx> EventHandler<OrderConfirmed, U>`"
)]
#[async_trait]
pub trait EventHandler<E: Event, U: Send>: Send + Sync + 'static {
    /// What `perform` brought back for `record`.
    type Receipt: Send + Sync + 'static;

    /// Reservations in the application's tables before anything is performed; one answer for each event, in order.
    async fn admit(&self, unit: &mut U, events: &[Claimed<E>]) -> Result<Vec<Admission>, StoreError> {
        let _ = unit;
        Ok(events.iter().map(|_| Admission::Proceed).collect())
    }

    /// Whether the application's tables know these events, whose claims have expired; one answer for each, in order.
    async fn known(&self, unit: &mut U, events: &[Arc<E>]) -> Result<Vec<Knowledge>, StoreError> {
        let _ = unit;
        Ok(vec![Knowledge::Unknown; events.len()])
    }

    /// The effect outside of the store. Must be safe to repeat with the same event.
    async fn perform(&self, event: &Claimed<E>) -> Result<Self::Receipt, HandlerError>;

    /// Says what became of an event whose every run ends with the death of the process, without performing it: it is asked
    /// instead of `perform` before such an event becomes a dead letter. Without an answer that is certain, the event is in
    /// doubt: it may have had its effect before a process died.
    async fn inquire(&self, event: &Claimed<E>) -> Result<Self::Receipt, HandlerError> {
        let _ = event;
        Err(HandlerError::Permanent(Refusal::new(ErrorClass::IN_DOUBT, "it may have had its effect before")))
    }

    /// Takes back what `admit` reserved for events that were not performed.
    async fn retract(&self, unit: &mut U, failed: &[Claimed<E>]) -> Result<(), StoreError> {
        let _ = (unit, failed);
        Ok(())
    }

    /// Writes the business change of the performed events, with one statement a table.
    async fn record(&self, unit: &mut U, done: &[(Claimed<E>, Self::Receipt)]) -> Result<(), StoreError>;
}

/// The answer of [`EventHandler::known`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// The application's tables show that the event was handled: a duplicate.
    Handled,
    /// They do not tell: a dead letter, for it is never guessed at (D-9).
    Unknown,
}

/// The answer of [`EventHandler::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Perform it.
    Proceed,
    /// Perform it, knowing that an earlier try may have had an effect: what was reserved for that one is still there. It
    /// may be a try of another delivery of the event, of which this one carries no word.
    ProceedInDoubt,
    /// The application's tables know it already: a duplicate whose claim had been removed.
    Duplicate,
    /// Must never be performed: a dead letter.
    Refused(Refusal),
}

/// Why an event ends without an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The class, for operators and metrics.
    pub class: ErrorClass,
    /// What is wrong, in words.
    pub reason: String,
    /// It is certain that no try of this event ever had an effect, because the other side was asked. Without that, an
    /// event that was in doubt before stays in doubt.
    pub settled: bool,
}

impl Refusal {
    /// A refusal that speaks for this try alone.
    pub fn new(class: ErrorClass, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into(), settled: false }
    }
}

/// The class of a failure: a short, stable word for headers, metrics and selection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ErrorClass(Cow<'static, str>);

impl ErrorClass {
    /// The payload is not an event of this topic.
    pub const UNDECODABLE: Self = Self::new("undecodable");
    /// The record key is not the key of the event.
    pub const KEY_MISMATCH: Self = Self::new("key_mismatch");
    /// The event's id lies in the future, beyond the allowed clock skew.
    pub const FROM_THE_FUTURE: Self = Self::new("from_the_future");
    /// The event's claim would lie below the floor: whether it was handled before cannot be told any more.
    pub const EXPIRED: Self = Self::new("expired");
    /// The handler failed for good.
    pub const PERMANENT: Self = Self::new("permanent");
    /// The handler failed for a while, and the last retry tier has been used.
    pub const RETRIES_EXHAUSTED: Self = Self::new("retries_exhausted");
    /// The store refuses the event's data; nothing was performed.
    pub const REJECTED: Self = Self::new("rejected");
    /// Whoever handles the event dies. As a rule the letter says `in_doubt` instead, because nobody knows how far those
    /// came who died.
    pub const KILLS_THE_PROCESS: Self = Self::new("kills_the_process");
    /// It is not known whether the effect happened.
    pub const IN_DOUBT: Self = Self::new("in_doubt");

    /// A class of the application's own: lower case, snake_case.
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why `perform` failed, by what happens to the event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// Will pass: the event goes to a retry tier.
    #[error("{reason}")]
    Transient {
        /// What happened, in words.
        reason: String,
        /// The shortest wait that the other side asked for.
        retry_after: Option<Duration>,
        /// Whether the effect may have happened all the same.
        effect: Effect,
    },
    /// Will never succeed, and did nothing: a dead letter.
    #[error("{}", .0.reason)]
    Permanent(Refusal),
    /// Infrastructure or credentials: intake pauses, the event stays where it is.
    #[error("{reason}")]
    Halt {
        /// What must be repaired.
        reason: String,
        /// Whether the effect may have happened all the same.
        effect: Effect,
    },
}

/// Whether a failed effect may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// This try certainly had none; earlier ones are another matter.
    None,
    /// No try ever had one: the other side was asked.
    Never,
    /// No answer, or one that does not tell: it may have.
    Unknown,
}
