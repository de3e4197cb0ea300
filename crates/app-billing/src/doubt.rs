//! What is concluded about an order whose charge is in doubt: when the provider is asked, and what its answer means.
//! Pure: no call is made here and no clock is read.

use std::time::Duration;

use core_delivery::event::UnixMillis;
use core_order::{ChargeReceipt, Effect, ErrorClass, EventId, GatewayError, HandlerError, LookUp, Refusal};

/// The provider declined the charge.
pub const DECLINED: ErrorClass = ErrorClass::new("declined");

/// The provider knows the key with another body, or for another order.
pub const KEY_REUSED: ErrorClass = ErrorClass::new("key_reused");

const STILL_PENDING: &str = "the look-up says that the charge is being made";

const MAYBE_FORGOTTEN: &str = "the order may have been charged before: the provider may have forgotten the event's \
                               idempotency key, and offers no look-up";

/// How long the provider certainly remembers an idempotency key (trap 8 of the rules). An older event may have been
/// charged before a crash under a key that means nothing any more: sending it again would charge again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyMemory {
    certain: Duration,
}

impl KeyMemory {
    /// `lifetime` is the provider's promise. The producer's clock may be ahead by `clock_skew`, and a call that is
    /// sent now may reach the provider only at the end of `call_timeout`.
    pub fn new(lifetime: Duration, clock_skew: Duration, call_timeout: Duration) -> Self {
        Self { certain: lifetime.saturating_sub(clock_skew).saturating_sub(call_timeout) }
    }

    /// Whether a call sent now could meet a provider that has forgotten an earlier call for the event. The id carries
    /// the time before which there was no call.
    pub fn may_be_gone(self, event: EventId, now: UnixMillis) -> bool {
        now.since(event.made_at()) >= self.certain
    }
}

/// What follows from the answer to a look-up before a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// The charge may be sent.
    Charge,
    /// It may not, or need not.
    Ended(Conclusion),
}

/// Why the provider is asked about a charge that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// It took the charge on (202).
    TakenOn {
        /// What it said.
        reason: String,
        /// The wait that it asked for.
        retry_after: Option<Duration>,
    },
    /// It knows the key (409): from a call that runs, or from one that is done.
    Conflict {
        /// What it said.
        reason: String,
    },
    /// It refused, but an earlier try of the same event may have moved the money.
    Refused(Refusal),
}

/// How a try ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// The money moved.
    Charged(ChargeReceipt),
    /// It ends without a charge that is certain.
    Failed(HandlerError),
    /// The provider cannot be asked about its 409: time has to tell.
    Wait {
        /// What it said.
        reason: String,
    },
}

/// What follows from a charge that was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Ask what became of it.
    Ask(Question),
    /// This try ends.
    Fail(HandlerError),
}

/// Whether the provider is asked before a charge is sent: if a try ended without a known outcome, or if there may have
/// been one that nobody remembers.
pub fn asks_first(in_doubt: bool, key_may_be_gone: bool) -> bool {
    in_doubt || key_may_be_gone
}

/// What to do about a charge that was sent and not confirmed.
///
/// | outcome | next |
/// |---|---|
/// | transient | try again later, with the same key and body |
/// | 202, 409 | ask |
/// | declined, key reused | ask if an earlier try is in doubt, else refuse; never under another key |
/// | misconfigured | halt |
pub fn after_charge(error: GatewayError, in_doubt: bool) -> Next {
    let refused = |class, reason| {
        let refusal = Refusal::new(class, reason);
        if in_doubt { Next::Ask(Question::Refused(refusal)) } else { Next::Fail(HandlerError::Permanent(refusal)) }
    };
    match error {
        GatewayError::Transient { reason, retry_after, effect } => {
            Next::Fail(HandlerError::Transient { reason, retry_after, effect })
        }
        GatewayError::Pending { reason, retry_after } => Next::Ask(Question::TakenOn { reason, retry_after }),
        GatewayError::Conflict { reason } => Next::Ask(Question::Conflict { reason }),
        GatewayError::Declined { reason } => refused(DECLINED, reason),
        GatewayError::KeyReused { reason } => refused(KEY_REUSED, reason),
        GatewayError::Misconfigured { reason } => Next::Fail(HandlerError::Halt { reason, effect: Effect::None }),
    }
}

/// What the answer before a charge means. `key_may_be_gone` is told as of the answer, right before the charge would be
/// sent.
///
/// | charged | pending | failed | not found | not offered |
/// |---|---|---|---|---|
/// | charged | unknown | declined | charge | charge, or `in_doubt` if the key may be gone |
pub fn before_charge(answer: LookUp, key_may_be_gone: bool) -> Opening {
    Opening::Ended(match answer {
        LookUp::Charged(receipt) => Conclusion::Charged(receipt),
        LookUp::Pending => unknown(STILL_PENDING.to_owned(), None),
        LookUp::Failed { reason } => declined(reason),
        LookUp::NotOffered if key_may_be_gone => refuse(Refusal::new(ErrorClass::IN_DOUBT, MAYBE_FORGOTTEN)),
        LookUp::NotFound | LookUp::NotOffered => return Opening::Charge,
    })
}

/// What the answer after a charge means.
///
/// | question | charged | pending | failed | not found | not offered |
/// |---|---|---|---|---|---|
/// | taken on (202) | charged | unknown | declined | unknown | unknown |
/// | conflict (409) | charged | unknown | declined | unknown | wait |
/// | refused | charged | unknown | refused | refused | refused, but what was in doubt stays so |
///
/// "Unknown" is tried again later. "Declined" and "refused" are settled: no try ever moved money.
pub fn conclude(question: Question, answer: LookUp) -> Conclusion {
    match (question, answer) {
        (_, LookUp::Charged(receipt)) => Conclusion::Charged(receipt),
        (question, LookUp::Pending) => {
            let (said, retry_after) = question.told();
            unknown(format!("{said}; {STILL_PENDING}"), retry_after)
        }
        (Question::Refused(refusal), LookUp::Failed { reason }) => {
            let reason = format!("{}; {reason}", refusal.reason);
            refuse(Refusal { reason, settled: true, ..refusal })
        }
        (_, LookUp::Failed { reason }) => declined(reason),
        (Question::Refused(refusal), LookUp::NotFound) => refuse(Refusal { settled: true, ..refusal }),
        (Question::Refused(refusal), LookUp::NotOffered) => refuse(refusal),
        (Question::TakenOn { reason, retry_after }, LookUp::NotFound | LookUp::NotOffered) => {
            unknown(reason, retry_after)
        }
        // It knows the key, so its books are only late: neither charged nor never.
        (Question::Conflict { reason }, LookUp::NotFound) => {
            unknown(format!("{reason}; the look-up does not find the charge yet"), None)
        }
        (Question::Conflict { reason }, LookUp::NotOffered) => Conclusion::Wait { reason },
    }
}

/// What the look-up means for an event of which everybody died who charged it: nobody charges it any more.
///
/// | charged | pending | failed | not found | not offered |
/// |---|---|---|---|---|
/// | charged | in doubt | declined | in doubt | in doubt |
///
/// Not found is no proof: the last call may still be under way, and nobody is left who would hear its answer.
pub fn after_deaths(answer: LookUp) -> Conclusion {
    let in_doubt = |text| refuse(Refusal::new(ErrorClass::IN_DOUBT, text));
    match answer {
        LookUp::Charged(receipt) => Conclusion::Charged(receipt),
        LookUp::Failed { reason } => declined(reason),
        LookUp::Pending => in_doubt(STILL_PENDING),
        LookUp::NotFound => in_doubt("the look-up finds no charge, but the last call may still have been under way"),
        LookUp::NotOffered => in_doubt("the provider offers no look-up, and may have charged it before a process died"),
    }
}

/// What follows from a look-up that failed, after the charge that led to it, if one was sent. It moved nothing, but
/// that charge may have.
pub fn look_up_failed(error: GatewayError, after: Option<Question>) -> HandlerError {
    let effect = match after {
        None | Some(Question::Refused(_)) => Effect::None,
        Some(Question::TakenOn { .. } | Question::Conflict { .. }) => Effect::Unknown,
    };
    let (said, asked_wait) = after.map(Question::told).unwrap_or_default();
    let both = |reason: String| if said.is_empty() { reason } else { format!("{said}; {reason}") };
    match error {
        GatewayError::Misconfigured { reason } => HandlerError::Halt { reason, effect },
        GatewayError::KeyReused { reason } => HandlerError::Permanent(Refusal::new(KEY_REUSED, reason)),
        GatewayError::Transient { reason, retry_after, .. } | GatewayError::Pending { reason, retry_after } => {
            HandlerError::Transient { reason: both(reason), retry_after: retry_after.max(asked_wait), effect }
        }
        // A question that was refused says nothing about the money.
        GatewayError::Conflict { reason } | GatewayError::Declined { reason } => {
            HandlerError::Transient { reason: both(reason), retry_after: asked_wait, effect }
        }
    }
}

/// The order is to be tried again, and the money may have moved.
pub fn unknown_outcome(reason: String, retry_after: Option<Duration>) -> HandlerError {
    HandlerError::Transient { reason, retry_after, effect: Effect::Unknown }
}

impl Question {
    /// The provider's words that led to the question, and the wait that it asked for.
    fn told(self) -> (String, Option<Duration>) {
        match self {
            Self::TakenOn { reason, retry_after } => (reason, retry_after),
            Self::Conflict { reason } => (reason, None),
            Self::Refused(refusal) => (refusal.reason, None),
        }
    }
}

fn unknown(reason: String, retry_after: Option<Duration>) -> Conclusion {
    Conclusion::Failed(unknown_outcome(reason, retry_after))
}

/// The provider itself says that the charge failed, so no try ever moved money.
fn declined(reason: String) -> Conclusion {
    refuse(Refusal { settled: true, ..Refusal::new(DECLINED, reason) })
}

fn refuse(refusal: Refusal) -> Conclusion {
    Conclusion::Failed(HandlerError::Permanent(refusal))
}

#[cfg(test)]
mod tests;
