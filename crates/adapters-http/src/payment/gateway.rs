//! The gateway: makes the request, reads the answer within its bounds and says what happened. What an answer means
//! is decided in `classify` and `look_up`.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use core_delivery::ports::error_chain;
use core_order::{ChargeReceipt, Claimed, Effect, Event, GatewayError, LookUp, OrderConfirmed, PaymentGateway};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, Url, redirect, retry};

use super::classify::{Answer, AnswerBody, classify};
use super::endpoint::{charges_url, is_in_the_clear, look_up_url};
use super::look_up::classify_look_up;
use super::metrics::PaymentMetrics;
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
    offers_look_up: bool,
    api_key: Option<Secret>,
    metrics: PaymentMetrics,
}

/// A request's name in reasons: its method and path.
struct Named(String);

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
        let (offers_look_up, api_key) = (settings.look_up, settings.api_key);
        Ok(Self { client, charges, offers_look_up, api_key, metrics: PaymentMetrics::new() })
    }

    /// Whether the API key can be read on the way: plain HTTP that leaves this machine. For a warning at start.
    pub fn sends_its_key_in_the_clear(&self) -> bool {
        self.api_key.is_some() && is_in_the_clear(&self.charges)
    }

    async fn send_charge(&self, order: &OrderConfirmed) -> Result<ChargeReceipt, GatewayError> {
        let named = Named(format!("POST {}", self.charges.path()));
        let request = self.client.post(self.charges.clone());
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.header("Idempotency-Key", order.id().to_string()).body(charge_body(order));
        let response = named.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await;
        let answer = Answer { request: &named.0, status, headers: &headers, body };
        classify(&answer, self.api_key.as_ref(), SystemTime::now())
    }

    async fn send_look_up(&self, order: &OrderConfirmed) -> Result<LookUp, GatewayError> {
        let named = Named(format!("GET {}", self.charges.path()));
        let request = self.client.get(look_up_url(&self.charges, order.id()));
        let response = named.send(request).await.map_err(without_effect)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await;
        let answer = Answer { request: &named.0, status, headers: &headers, body };
        classify_look_up(&answer, order, self.api_key.as_ref(), SystemTime::now())
    }
}

impl Named {
    async fn send(&self, request: RequestBuilder) -> Result<Response, GatewayError> {
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
        let reason = format!("{} {what}: {}", self.0, error_chain(&error.without_url()));
        GatewayError::Transient { reason, retry_after: None, effect }
    }
}

#[async_trait]
impl PaymentGateway for HttpPaymentGateway {
    async fn charge(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, GatewayError> {
        let started = Instant::now();
        let outcome = self.send_charge(order.event()).await;
        self.metrics.charged(&outcome, started.elapsed());
        outcome
    }

    async fn look_up(&self, order: &Claimed<OrderConfirmed>) -> Result<LookUp, GatewayError> {
        if !self.offers_look_up {
            return Ok(LookUp::NotOffered);
        }
        let started = Instant::now();
        let result = self.send_look_up(order.event()).await;
        self.metrics.looked_up(&result, started.elapsed());
        result
    }
}

/// A question moves nothing, whatever became of it.
fn without_effect(error: GatewayError) -> GatewayError {
    match error {
        GatewayError::Transient { reason, retry_after, .. } => {
            GatewayError::Transient { reason, retry_after, effect: Effect::None }
        }
        other => other,
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
