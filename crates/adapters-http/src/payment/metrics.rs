//! Every metric of payment, declared once. They are counted here, where each request is seen with its time: the
//! application joins calls and asks for look-ups that may be switched off. Labels are few and never an event id.

use std::time::Duration;

use core_order::{ChargeReceipt, Effect, GatewayError, LookUp};
use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

const CHARGE_CALLS: &str = "billing_charge_calls_total";
const LOOK_UPS: &str = "billing_look_ups_total";
const CALL_SECONDS: &str = "billing_call_duration_seconds";

/// Tells the installed recorder what the metrics mean. Call it once, after a recorder was installed.
pub fn describe_metrics() {
    describe_counter!(CHARGE_CALLS, "Calls that ask the provider to charge, by outcome.");
    describe_counter!(LOOK_UPS, "Look-ups at the provider, by result.");
    describe_histogram!(CALL_SECONDS, Unit::Seconds, "How long a call to the provider took, by kind of call.");
}

/// Handles of the recorder that was installed when they were made. All of them show from the start, as zeros.
#[derive(Debug)]
pub(super) struct PaymentMetrics {
    charge_calls: [(&'static str, Counter); 8],
    look_ups: [(&'static str, Counter); 8],
    charge_seconds: Histogram,
    look_up_seconds: Histogram,
}

impl PaymentMetrics {
    pub(super) fn new() -> Self {
        let calls = |outcome: &'static str| (outcome, counter!(CHARGE_CALLS, "outcome" => outcome));
        let look_ups = |result: &'static str| (result, counter!(LOOK_UPS, "result" => result));
        Self {
            charge_calls: OUTCOMES.map(calls),
            look_ups: RESULTS.map(look_ups),
            charge_seconds: histogram!(CALL_SECONDS, "call" => "charge"),
            look_up_seconds: histogram!(CALL_SECONDS, "call" => "look_up"),
        }
    }

    pub(super) fn charged(&self, outcome: &Result<ChargeReceipt, GatewayError>, took: Duration) {
        let word = outcome.as_ref().map_or_else(error_word, |_| "charged");
        count(&self.charge_calls, word);
        self.charge_seconds.record(took);
    }

    pub(super) fn looked_up(&self, result: &Result<LookUp, GatewayError>, took: Duration) {
        let word = match result {
            Ok(LookUp::Charged(_)) => "charged",
            Ok(LookUp::Pending) => "pending",
            Ok(LookUp::Failed { .. }) => "failed",
            Ok(LookUp::NotFound) => "not_found",
            Ok(LookUp::NotOffered) => "not_offered",
            Err(error) => error_word(error),
        };
        count(&self.look_ups, word);
        self.look_up_seconds.record(took);
    }
}

const OUTCOMES: [&str; 8] =
    ["charged", "pending", "transient", "unknown", "conflict", "key_reused", "declined", "misconfigured"];
const RESULTS: [&str; 8] =
    ["charged", "pending", "failed", "not_found", "not_offered", "transient", "key_reused", "misconfigured"];

/// A transient failure is `unknown` if the money may have moved.
fn error_word(error: &GatewayError) -> &'static str {
    match error {
        GatewayError::Transient { effect: Effect::Unknown, .. } => "unknown",
        GatewayError::Transient { .. } => "transient",
        GatewayError::Pending { .. } => "pending",
        GatewayError::Conflict { .. } => "conflict",
        GatewayError::KeyReused { .. } => "key_reused",
        GatewayError::Declined { .. } => "declined",
        GatewayError::Misconfigured { .. } => "misconfigured",
    }
}

fn count(counters: &[(&'static str, Counter)], word: &str) {
    if let Some((_, counter)) = counters.iter().find(|(known, _)| *known == word) {
        counter.increment(1);
    }
}
