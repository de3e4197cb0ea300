//! What an answer of the provider means. Pure, so that every class is in one table; what is done about a class is
//! not decided here.

use std::time::SystemTime;

use core_order::{ChargeReceipt, Effect, GatewayError};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::reason::provider_text;
use super::retry_after::retry_after;
use super::secret::Secret;
use super::wire::provider_ref;

/// An answer, as far as it arrived.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    /// Method and path of the request.
    pub(super) request: &'a str,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: AnswerBody,
}

/// How much of the body there is.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// All of it.
    Whole(Vec<u8>),
    /// The start: the rest was not read, because it is longer than any answer of use.
    TooLong(Vec<u8>),
    /// The start: the connection broke or the time was up, with the error.
    Cut(Vec<u8>, String),
}

/// | status | class | effect |
/// |---|---|---|
/// | 2xx, but 202 | charged, if the body arrived | |
/// | 202 | pending | |
/// | a cut body of a 2xx | transient | unknown |
/// | 3xx, 401, 403, 407 | misconfigured | |
/// | 408 | transient | unknown: the request was too slow for someone on the way, who may have passed it on |
/// | 409 | conflict | |
/// | 422 | key reused | |
/// | 425, 429 | transient | none: the request was refused before it was looked at |
/// | every other 4xx | declined | |
/// | 5xx, and what is no HTTP status | transient | unknown |
///
/// A wrong path (404, 405, 410) is "declined" like every other 4xx: providers answer 404 also for a customer they do
/// not know, and a storm of declines stops intake elsewhere.
pub(super) fn classify(
    answer: &Answer<'_>,
    api_key: Option<&Secret>,
    now: SystemTime,
) -> Result<ChargeReceipt, GatewayError> {
    let reason = |body: &[u8]| reason_of(answer, provider_text(body, api_key));
    let transient =
        |reason, effect| Err(GatewayError::Transient { reason, retry_after: retry_after(answer.headers, now), effect });
    let body = match &answer.body {
        AnswerBody::Whole(body) | AnswerBody::TooLong(body) => body,
        AnswerBody::Cut(_, error) if answer.status.is_success() => {
            let reason = format!("{} answered {}, but the body was cut: {error}", answer.request, answer.status);
            return transient(reason, Effect::Unknown);
        }
        AnswerBody::Cut(body, _) => body,
    };
    match answer.status.as_u16() {
        202 => Err(GatewayError::Pending {
            reason: format!("{}; the charge is pending", reason(body)),
            retry_after: retry_after(answer.headers, now),
        }),
        200..=299 => Ok(ChargeReceipt { provider_ref: provider_ref(body) }),
        300..=399 => {
            Err(GatewayError::Misconfigured { reason: format!("{}; redirects are not followed", reason(body)) })
        }
        401 | 403 | 407 => Err(GatewayError::Misconfigured { reason: reason(body) }),
        409 => Err(GatewayError::Conflict { reason: reason(body) }),
        422 => Err(GatewayError::KeyReused { reason: reason(body) }),
        425 | 429 => transient(reason(body), Effect::None),
        408 => transient(reason(body), Effect::Unknown),
        400..=499 => Err(GatewayError::Declined { reason: reason(body) }),
        _ => transient(reason(body), Effect::Unknown),
    }
}

/// The request, the status and the provider's words.
pub(super) fn reason_of(answer: &Answer<'_>, text: String) -> String {
    let Answer { request, status, .. } = answer;
    if text.is_empty() {
        format!("{request} answered {status}")
    } else {
        format!("{request} answered {status}: {text}")
    }
}

#[cfg(test)]
mod tests;
