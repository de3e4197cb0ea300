//! The gateway: makes the request, reads the answer within its bounds and says what happened. What an answer means
//! is decided in `classify`.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use core_delivery::ports::error_chain;
use core_order::{ChargeReceipt, Claimed, Effect, Event, GatewayError, OrderConfirmed, PaymentGateway};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url, redirect, retry};

use super::classify::{Answer, AnswerBody, classify};
use super::endpoint::charges_url;
use super::secret::Secret;
use super::settings::{PaymentConfigError, PaymentSettings};
use super::wire::charge_body;

/// The most of an answer's body that is read.
const BODY_LIMIT: usize = 64 * 1024;

/// How long an unused connection is kept. The shortest common keep-alive of servers is 5 s (Node.js, uvicorn,
/// Apache). Giving up first keeps a request off a connection that is just being closed, which would leave its outcome
/// unknown. Under load no connection is unused for so long; after a pause the next call pays for a new one.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Charges over HTTP/1.1.
///
/// It follows no redirect, repeats nothing, uses no proxy whatever the environment says, and trusts the system's CA
/// certificates.
#[derive(Debug)]
pub struct HttpPaymentGateway {
    client: Client,
    charges: Url,
    /// Method and path, for reasons.
    request: String,
    api_key: Option<Secret>,
}

impl HttpPaymentGateway {
    /// Makes a gateway; nothing is sent yet.
    pub fn new(settings: PaymentSettings) -> Result<Self, PaymentConfigError> {
        let charges = charges_url(&settings.base_url)?;
        if settings.connect_timeout.is_zero() || settings.call_timeout.is_zero() {
            return Err(PaymentConfigError::Timeout);
        }
        let client = Client::builder()
            .default_headers(headers(settings.api_key.as_ref())?)
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.call_timeout)
            .timeout(settings.call_timeout)
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(settings.max_in_flight)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| PaymentConfigError::Client(error.into()))?;
        let request = format!("POST {}", charges.path());
        Ok(Self { client, charges, request, api_key: settings.api_key })
    }

    async fn send(&self, order: &OrderConfirmed) -> Result<Response, GatewayError> {
        let request = self.client.post(self.charges.clone());
        let request = request.header("Idempotency-Key", order.id().to_string()).body(charge_body(order));
        request.send().await.map_err(|error| self.no_answer(error))
    }

    /// A connection that was not made carried nothing. After that, nobody knows (R-KFK-IDEM-4).
    fn no_answer(&self, error: reqwest::Error) -> GatewayError {
        let (what, effect) = if error.is_connect() {
            ("could not connect", Effect::None)
        } else if error.is_timeout() {
            ("got no answer in time", Effect::Unknown)
        } else {
            ("got no answer", Effect::Unknown)
        };
        let reason = format!("{} {what}: {}", self.request, error_chain(&error.without_url()));
        GatewayError::Transient { reason, retry_after: None, effect }
    }
}

#[async_trait]
impl PaymentGateway for HttpPaymentGateway {
    async fn charge(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, GatewayError> {
        let response = self.send(order.event()).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await;
        let answer = Answer { request: &self.request, status, headers: &headers, body };
        classify(&answer, self.api_key.as_ref(), SystemTime::now())
    }
}

/// Reads the body up to the limit.
async fn read(mut response: Response) -> AnswerBody {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return AnswerBody::Whole(body),
            Err(error) => return AnswerBody::Cut(body, error_chain(&error.without_url())),
        }
        if body.len() > BODY_LIMIT {
            body.truncate(BODY_LIMIT);
            return AnswerBody::TooLong(body);
        }
    }
}

fn headers(api_key: Option<&Secret>) -> Result<HeaderMap, PaymentConfigError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = api_key {
        if key.expose().trim().is_empty() {
            return Err(PaymentConfigError::ApiKey);
        }
        let mut value =
            HeaderValue::try_from(format!("Bearer {}", key.expose())).map_err(|_| PaymentConfigError::ApiKey)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}
