//! What finally became of a delivered record, and the failure that leads there. Only a verdict settles a ticket.

use std::time::Duration;

use crate::ports::{Effect, ErrorClass, HandlerError, IgnoreReason, Refusal};

/// What became of a delivered record (D-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The business change and the claim were committed.
    Applied,
    /// It was handled before.
    Duplicate,
    /// The broker acknowledged its copy in a retry tier.
    Retried,
    /// The broker acknowledged its copy among the dead letters.
    DeadLettered(ErrorClass),
    /// It is not for this consumer.
    Ignored(IgnoreReason),
}

/// Why an event could not be handled now, and whether another try can help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class.
    pub class: ErrorClass,
    /// In words.
    pub text: String,
    /// Whether another try can help.
    pub retry: Retry,
    /// Whether the effect may have happened.
    pub effect: Effect,
}

/// A handler's wish to stop intake.
#[derive(Debug)]
pub(super) struct Halt {
    pub(super) reason: String,
    pub(super) effect: Effect,
}

/// Whether another try can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It can, not before the given wait.
    After(Option<Duration>),
    /// It cannot.
    Never,
}

impl Failure {
    /// A failure that no try will mend, before anything was performed.
    pub fn dead(class: ErrorClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into(), retry: Retry::Never, effect: Effect::None }
    }

    /// Whether the effect certainly did not happen, of an event that was in doubt before or not.
    pub(super) fn had_no_effect(&self, in_doubt: bool) -> bool {
        certainly_none(self.effect, in_doubt)
    }

    /// A refusal of the handler.
    pub(super) fn refused(refusal: Refusal) -> Self {
        let effect = if refusal.settled { Effect::Never } else { Effect::None };
        Self { effect, ..Self::dead(refusal.class, refusal.reason) }
    }

    /// The failure that a handler reported; `None` if it asks to stop intake instead.
    pub(super) fn of_handler(error: HandlerError) -> Result<Self, Halt> {
        match error {
            HandlerError::Transient { reason, retry_after, effect } => Ok(Self {
                class: ErrorClass::RETRIES_EXHAUSTED,
                text: reason,
                retry: Retry::After(retry_after),
                effect,
            }),
            HandlerError::Permanent(refusal) => Ok(Self::refused(refusal)),
            HandlerError::Halt { reason, effect } => Err(Halt { reason, effect }),
        }
    }
}

/// Whether a try with this effect leaves nothing behind: then what was reserved for the event is taken back.
pub(super) fn certainly_none(effect: Effect, in_doubt: bool) -> bool {
    effect == Effect::Never || effect == Effect::None && !in_doubt
}
