//! What the answer to a look-up means. Pure. An answer that is not understood says nothing about the charge: only a
//! 200 with an empty list means that the order was not charged.

use std::time::SystemTime;

use core_order::{ChargeReceipt, Effect, Event, GatewayError, LookUp, OrderConfirmed};
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::classify::{Answer, AnswerBody, reason_of};
use super::reason::provider_text;
use super::retry_after::retry_after;
use super::secret::Secret;

/// The body of a 200.
#[derive(Deserialize)]
struct Listed {
    charges: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    id: Value,
    /// Not part of the contract, but whoever tells it is taken at their word.
    idempotency_key: Option<String>,
    order_id: String,
    amount: i64,
    currency: String,
    status: String,
}

/// | answer | means |
/// |---|---|
/// | 200 with a list of charges of this order | charged, if one of them succeeded; else pending, if one is; else failed |
/// | 200 with an empty list | not found |
/// | 200 with a charge of another order, amount or currency | key reused: the key belongs to another charge |
/// | 200 that is no such list, or lists other keys | misconfigured: no look-up as agreed |
/// | 404, 405 | not offered |
/// | 202, 408, 425, 429, 5xx, a status of a charge that we do not know, a cut body | transient |
/// | every other status | misconfigured: the request differs by the key alone, so it is wrong for every order |
///
/// No error has an effect, and none is "declined": a question that was refused says nothing about the money.
pub(super) fn classify_look_up(
    answer: &Answer<'_>,
    order: &OrderConfirmed,
    api_key: Option<&Secret>,
    now: SystemTime,
) -> Result<LookUp, GatewayError> {
    let transient = |reason| Err(transient(reason, answer.headers, now));
    let (AnswerBody::Whole(body) | AnswerBody::TooLong(body) | AnswerBody::Cut(body, _)) = &answer.body;
    let reason = || reason_of(answer, provider_text(body, api_key));
    match (answer.status.as_u16(), &answer.body) {
        (200, AnswerBody::Whole(body)) => match serde_json::from_slice(body) {
            Ok(listed) => meaning(listed, order, answer, api_key, now),
            // The parser's words hold the provider's.
            Err(error) => {
                let error = provider_text(error.to_string().as_bytes(), api_key);
                Err(not_as_agreed(reason(), &format!("no list of charges: {error}")))
            }
        },
        (200, AnswerBody::TooLong(_)) => Err(not_as_agreed(reason(), "longer than the charges of one key can be")),
        (200, AnswerBody::Cut(_, error)) => {
            transient(format!("{} answered {}, but the body was cut: {error}", answer.request, answer.status))
        }
        (404 | 405, _) => Ok(LookUp::NotOffered),
        (202 | 408 | 425 | 429, _) => transient(reason()),
        (201..=499, _) => Err(GatewayError::Misconfigured { reason: reason() }),
        _ => transient(reason()),
    }
}

fn meaning(
    listed: Listed,
    order: &OrderConfirmed,
    answer: &Answer<'_>,
    api_key: Option<&Secret>,
    now: SystemTime,
) -> Result<LookUp, GatewayError> {
    let key = order.id().to_string();
    let said = || format!("{} answered {}", answer.request, answer.status);
    let tells_of = |entry: &Entry| format!("{}: {}", said(), entry.text(api_key));
    let of_another_key = |entry: &Entry| entry.idempotency_key.as_ref().is_some_and(|k| !k.eq_ignore_ascii_case(&key));
    if listed.charges.iter().any(of_another_key) {
        return Err(not_as_agreed(said(), "with charges of other keys"));
    }
    if let Some(other) = listed.charges.iter().find(|entry| !entry.is_of(order)) {
        return Err(GatewayError::KeyReused { reason: format!("{}, for which the key was used", tells_of(other)) });
    }
    let of_status = |status: &str| listed.charges.iter().filter(|entry| entry.status == status).collect::<Vec<_>>();
    let (succeeded, pending, failed) = (of_status("succeeded"), of_status("pending"), of_status("failed"));
    if let Some(first) = succeeded.first() {
        if succeeded.len() > 1 {
            // The provider's promise is broken, not ours; the customer paid too often all the same.
            tracing::error!(event_id = %key, charges = succeeded.len(), "the provider charged more than once under one key");
        }
        return Ok(LookUp::Charged(ChargeReceipt { provider_ref: first.reference() }));
    }
    if !pending.is_empty() {
        return Ok(LookUp::Pending);
    }
    if let Some(unknown) = listed.charges.iter().find(|entry| entry.status != "failed") {
        return Err(transient(format!("{}, a status not known here", tells_of(unknown)), answer.headers, now));
    }
    Ok(match failed.first() {
        Some(failed) => LookUp::Failed { reason: tells_of(failed) },
        None => LookUp::NotFound,
    })
}

impl Entry {
    /// Some providers write a currency in lower case.
    fn is_of(&self, order: &OrderConfirmed) -> bool {
        let total = order.total();
        self.order_id == order.order_id().as_str()
            && self.amount == total.minor_units
            && self.currency.eq_ignore_ascii_case(total.currency.as_str())
    }

    fn reference(&self) -> Option<String> {
        self.id.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
    }

    /// In words, bounded as everything of the provider's.
    fn text(&self, api_key: Option<&Secret>) -> String {
        let Self { order_id, amount, currency, status, .. } = self;
        let id = self.id.as_str().unwrap_or("without an id");
        let text = format!("charge {id} of {amount} {currency} for order {order_id}, {status}");
        provider_text(text.as_bytes(), api_key)
    }
}

fn transient(reason: String, headers: &HeaderMap, now: SystemTime) -> GatewayError {
    GatewayError::Transient { reason, retry_after: retry_after(headers, now), effect: Effect::None }
}

fn not_as_agreed(said: String, what: &str) -> GatewayError {
    GatewayError::Misconfigured { reason: format!("{said}; not a look-up as agreed: {what}") }
}

#[cfg(test)]
mod tests;
