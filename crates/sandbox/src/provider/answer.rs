//! What goes back to the caller: a status and a JSON body, or a broken connection. No decision about charges.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;

use super::record::{Charge, ChargeStatus};

/// A status and a JSON body.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// It was given before, to an earlier call with the key.
    pub(super) replayed: bool,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorDetail<'a>,
}

#[derive(Serialize)]
struct ErrorDetail<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct Charged<'a> {
    id: &'a str,
    status: ChargeStatus,
    order_id: &'a str,
    amount: i64,
    currency: &'a str,
}

impl Answer {
    /// What a charge that was made, or declined, is answered with.
    pub(super) fn of_charge(charge: &Charge) -> Self {
        let Charge { id, order_id, amount, currency, status, .. } = charge;
        if *status == ChargeStatus::Failed {
            return Self::error(StatusCode::PAYMENT_REQUIRED, "card_declined", "the card was declined");
        }
        Self::json(StatusCode::CREATED, &Charged { id, status: *status, order_id, amount: *amount, currency })
    }

    pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("strings, numbers and maps of them always serialize");
        Self { status, body: body.into(), replayed: false }
    }

    pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Self {
        Self::json(status, &ErrorBody { error: ErrorDetail { code, message } })
    }

    pub(super) fn into_response(self) -> Response<Body> {
        self.response(Body::from)
    }

    /// Announces the whole body and ends the connection in the middle of it.
    pub(super) fn into_cut_response(self) -> Response<Body> {
        self.response(|body| Body::new(CutBody { whole: body, sent: false, flushed: false }))
    }

    /// Ends the connection without any answer.
    pub(super) fn reset() -> Response<Body> {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(ResetConnection);
        response
    }

    fn response(self, body: impl FnOnce(Bytes) -> Body) -> Response<Body> {
        let mut response = Response::new(body(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.replayed {
            headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        }
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// On a response: it must not be sent, and the connection is to be reset.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResetConnection;

/// Yields half of the bytes it announced, then fails, which makes the server close the connection.
struct CutBody {
    whole: Bytes,
    sent: bool,
    flushed: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the body is cut, as injected")]
struct Cut;

impl HttpBody for CutBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if !self.sent {
            self.sent = true;
            let half = self.whole.slice(..self.whole.len() / 2);
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        if !self.flushed {
            // hyper flushes what it has while the body is pending; after an error it would not.
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(Cut)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.whole.len() as u64)
    }
}
