//! The provider's HTTP: from a request to a call on the books, and from its outcome to an answer or a broken
//! connection. What is charged is the books' decision.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::answer::Answer;
use super::faults::FaultKind;
use super::ledger::{Call, Ledger, Ticket, Wanted};
use super::record::Charge;
use super::settings::ProviderSettings;
use super::weather::{Trouble, TroubleKind, Weather};

const BODY_LIMIT: usize = 64 * 1024;
const PAGE: usize = 1_000;
const LONGEST_PAGE: usize = 10_000;

/// What every request needs.
pub(super) struct Shared {
    pub(super) ledger: Ledger,
    pub(super) settings: ProviderSettings,
    /// How many charges wait in tasks of their own.
    pub(super) waiting: watch::Sender<usize>,
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/charges", post(charge).get(charges))
        .route("/charges/summary", get(summary))
        .route("/faults", post(faults))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(shared)
}

async fn charge(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    if let Some(refusal) = shared.refuse_caller(&headers) {
        return refusal.into_response();
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::trim).unwrap_or_default();
    if key.is_empty() {
        shared.ledger.count_invalid();
        let message = "the header Idempotency-Key is missing, empty or not ASCII";
        return Answer::error(StatusCode::BAD_REQUEST, "idempotency_key_missing", message).into_response();
    }
    let parsed = serde_json::from_slice::<Wire<'_>>(&body);
    let wanted = parsed.as_ref().map_err(ToString::to_string).and_then(Wire::check);
    match shared.ledger.begin(key, &body, wanted) {
        Call::Refuse(answer) => answer.into_response(),
        Call::Replay(answer, fault) => {
            tokio::time::sleep(shared.pause(fault)).await;
            match fault {
                Some(fault) if !fault.kind.charges() => without_charge(fault.kind),
                _ => after_charge(answer, fault),
            }
        }
        Call::Charge(ticket, fault) => run(shared, ticket, fault).await,
    }
}

/// Runs a charge to its end, also when the caller leaves while it waits.
async fn run(shared: Arc<Shared>, ticket: Ticket, fault: Option<Trouble>) -> Response<Body> {
    let pause = shared.pause(fault);
    if pause.is_zero() {
        return settle(&shared, ticket, fault);
    }
    let waiting = Waiting::new(Arc::clone(&shared));
    let task = tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        settle(&waiting.0, ticket, fault)
    });
    task.await.unwrap_or_else(|_| Answer::reset())
}

fn settle(shared: &Shared, ticket: Ticket, fault: Option<Trouble>) -> Response<Body> {
    match fault {
        Some(fault) if !fault.kind.charges() => {
            shared.ledger.abandon(ticket);
            without_charge(fault.kind)
        }
        _ => after_charge(shared.ledger.finish(ticket), fault),
    }
}

fn without_charge(fault: TroubleKind) -> Response<Body> {
    match fault {
        TroubleKind::TooManyRequests => {
            let message = "too many requests, as injected";
            Answer::error(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message).into_response()
        }
        TroubleKind::Fault(FaultKind::ResetBeforeCharge) => Answer::reset(),
        TroubleKind::Fault(FaultKind::Unavailable) => {
            let message = "try again in a second, as injected";
            Answer::error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).into_response()
        }
        _ => internal_error(),
    }
}

fn after_charge(answer: Answer, fault: Option<Trouble>) -> Response<Body> {
    match fault.map(|fault| fault.kind) {
        Some(TroubleKind::Fault(FaultKind::ErrorAfterCharge)) => internal_error(),
        Some(TroubleKind::Fault(FaultKind::ResetAfterCharge)) => Answer::reset(),
        Some(TroubleKind::Fault(FaultKind::CutBody)) => answer.into_cut_response(),
        _ => answer.into_response(),
    }
}

fn internal_error() -> Response<Body> {
    Answer::error(StatusCode::INTERNAL_SERVER_ERROR, "internal", "an error, as injected").into_response()
}

/// The body of a charge.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    order_id: Cow<'a, str>,
    #[serde(borrow, default)]
    customer_id: Cow<'a, str>,
    amount: i64,
    #[serde(borrow)]
    currency: Cow<'a, str>,
}

impl Wire<'_> {
    fn check(&self) -> Result<Wanted<'_>, String> {
        if self.order_id.is_empty() {
            return Err("order_id is empty".to_owned());
        }
        if self.amount <= 0 {
            return Err(format!("amount is {}, expected an integer above 0", self.amount));
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(format!("currency is {:?}, expected three letters", self.currency));
        }
        Ok(Wanted {
            order_id: &self.order_id,
            customer_id: &self.customer_id,
            amount: self.amount,
            currency: &self.currency,
        })
    }
}

#[derive(Deserialize)]
struct Selection {
    idempotency_key: Option<String>,
    after: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Page {
    charges: Vec<Charge>,
    /// How many there are on all pages.
    total: usize,
    /// What to pass as `after` for the next page; null after the last one.
    next: Option<usize>,
}

async fn charges(
    State(shared): State<Arc<Shared>>,
    Query(selection): Query<Selection>,
    headers: HeaderMap,
) -> Response<Body> {
    if let Some(refusal) = shared.refuse_stranger(&headers) {
        return refusal.into_response();
    }
    let page = match selection.idempotency_key {
        Some(_) if shared.ledger.refuses_everybody() => return shared.unauthorized().into_response(),
        Some(_) if !shared.settings.look_up => {
            let message = "this provider offers no look-up";
            return Answer::error(StatusCode::NOT_FOUND, "no_look_up", message).into_response();
        }
        Some(key) => {
            let charges: Vec<_> = shared.ledger.look_up(&key).into_iter().collect();
            Page { total: charges.len(), charges, next: None }
        }
        None => {
            let after = selection.after.unwrap_or(0);
            let limit = selection.limit.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
            let (charges, total) = shared.ledger.page(after, limit);
            let end = after.saturating_add(charges.len());
            Page { charges, total, next: (end < total).then_some(end) }
        }
    };
    Answer::json(StatusCode::OK, &page).into_response()
}

async fn summary(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response<Body> {
    match shared.refuse_stranger(&headers) {
        Some(refusal) => refusal.into_response(),
        None => Answer::json(StatusCode::OK, &shared.ledger.summary()).into_response(),
    }
}

/// Sets the weather.
async fn faults(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    if let Some(refusal) = shared.refuse_stranger(&headers) {
        return refusal.into_response();
    }
    match Weather::parse(&body) {
        Ok(weather) => {
            shared.ledger.set_weather(weather);
            Answer::json(StatusCode::OK, &()).into_response()
        }
        Err(message) => Answer::error(StatusCode::BAD_REQUEST, "unknown_faults", &message).into_response(),
    }
}

impl Shared {
    /// For a charge: the weather may turn everybody away.
    fn refuse_caller(&self, headers: &HeaderMap) -> Option<Answer> {
        if self.ledger.refuses_everybody() { Some(self.unauthorized()) } else { self.refuse_stranger(headers) }
    }

    fn refuse_stranger(&self, headers: &HeaderMap) -> Option<Answer> {
        let expected = self.settings.api_key.as_ref()?;
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given.and_then(|value| value.strip_prefix("Bearer ")) == Some(expected) {
            return None;
        }
        Some(self.unauthorized())
    }

    fn unauthorized(&self) -> Answer {
        self.ledger.count_unauthorized();
        Answer::error(StatusCode::UNAUTHORIZED, "unauthorized", "the API key is missing or wrong")
    }

    fn pause(&self, fault: Option<Trouble>) -> Duration {
        let is_slow = |fault: &Trouble| fault.kind == TroubleKind::Fault(FaultKind::SlowAnswer);
        let slow = fault.filter(is_slow).map_or(0, |fault| fault.slow_ms);
        Duration::from_millis(self.settings.latency_ms.saturating_add(slow))
    }
}

/// Counts a charge that waits in its own task, until it is dropped.
struct Waiting(Arc<Shared>);

impl Waiting {
    fn new(shared: Arc<Shared>) -> Self {
        shared.waiting.send_modify(|count| *count += 1);
        Self(shared)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}
