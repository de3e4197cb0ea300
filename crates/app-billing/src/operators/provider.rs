//! Questions to the payment provider: does it answer, and what did it charge. It never charges.

use std::time::Duration;

use core_delivery::event::EventId;
use core_delivery::ports::error_chain;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url, redirect};
use serde_json::Value;

use crate::config::Secret;

/// How many charges are asked for at once.
const PAGE: u64 = 1_000;

/// A client for questions.
pub struct Questions {
    client: Client,
    base: Url,
}

/// Why there is no answer that says anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// No connection, no answer in time, or the provider's own failure.
    Unreachable(String),
    /// It knows no such question, or answers something else.
    NotOffered(String),
    /// The API key is refused.
    Refused(String),
    /// The settings are wrong.
    Settings(String),
}

impl NoAnswer {
    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unreachable(reason) | Self::NotOffered(reason) | Self::Refused(reason) | Self::Settings(reason) => {
                reason
            }
        }
    }
}

impl Questions {
    /// For the provider at this base URL.
    pub fn new(
        base: &str,
        api_key: Option<&Secret>,
        connect_limit: Duration,
        answer_limit: Duration,
    ) -> Result<Self, NoAnswer> {
        let settings = |what: &str| NoAnswer::Settings(what.to_owned());
        let mut base = Url::parse(base.trim()).map_err(|_| settings("PAYMENT_URL is not a URL"))?;
        if base.cannot_be_a_base() {
            return Err(settings("PAYMENT_URL is not the URL of a server"));
        }
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        let mut headers = HeaderMap::new();
        if let Some(key) = api_key {
            let value = HeaderValue::try_from(format!("Bearer {}", key.reveal()));
            let mut value = value.map_err(|_| settings("the API key has characters that a header cannot carry"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .http1_only()
            .default_headers(headers)
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(connect_limit)
            .timeout(answer_limit)
            .build()
            .map_err(|error| NoAnswer::Settings(error_chain(&error.without_url())))?;
        Ok(Self { client, base })
    }

    /// Whether a server answers, whatever it says.
    pub async fn answers(&self) -> Result<String, NoAnswer> {
        let asked = self.client.head(self.base.clone()).send().await;
        let answer = asked.map_err(|error| NoAnswer::Unreachable(error_chain(&error.without_url())))?;
        Ok(format!("answers ({})", answer.status()))
    }

    /// Looks up an event that was never charged: the answer must be an empty list.
    pub async fn looks_up(&self, event: EventId) -> Result<(), NoAnswer> {
        let answer = self.charges(&[("idempotency_key", event.to_string())]).await?;
        match answer.get("charges").and_then(Value::as_array) {
            Some(charges) if charges.is_empty() => Ok(()),
            Some(_) => Err(NoAnswer::NotOffered("lists charges of other keys when one is asked for".to_owned())),
            None => Err(NoAnswer::NotOffered("answers something else than a list of charges".to_owned())),
        }
    }

    /// Calls `each` with key and order of every charge that moved money. Returns how many there are.
    pub async fn succeeded(&self, mut each: impl FnMut(&str, &str, u64)) -> Result<u64, NoAnswer> {
        let (mut after, mut count) = (0, 0);
        loop {
            let page = self.charges(&[("after", after.to_string()), ("limit", PAGE.to_string())]).await?;
            let Some(charges) = page.get("charges").and_then(Value::as_array) else {
                return Err(NoAnswer::NotOffered("answers something else than a list of charges".to_owned()));
            };
            for charge in charges {
                let field = |name| charge.get(name).and_then(Value::as_str);
                let (Some(key), Some(order), Some(status)) =
                    (field("idempotency_key"), field("order_id"), field("status"))
                else {
                    return Err(NoAnswer::NotOffered("does not tell key, order and status of its charges".to_owned()));
                };
                if status == "succeeded" {
                    count += 1;
                    each(key, order, count);
                }
            }
            match page.get("next").and_then(Value::as_u64) {
                Some(next) if next > after => after = next,
                Some(_) => return Err(NoAnswer::NotOffered("answers the same page again".to_owned())),
                None if page.get("next").is_none() => {
                    let reason = "does not tell whether its list of charges is whole";
                    return Err(NoAnswer::NotOffered(reason.to_owned()));
                }
                None => return Ok(count),
            }
        }
    }

    async fn charges(&self, query: &[(&str, String)]) -> Result<Value, NoAnswer> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/charges", self.base.path().trim_end_matches('/')));
        url.query_pairs_mut().extend_pairs(query);
        let unreachable = |error: reqwest::Error| NoAnswer::Unreachable(error_chain(&error.without_url()));
        let answer = self.client.get(url).send().await.map_err(unreachable)?;
        let status = answer.status();
        let reason = format!("answers {status} to GET /charges");
        match status {
            StatusCode::OK => {
                let body = answer.bytes().await.map_err(unreachable)?;
                serde_json::from_slice(&body).map_err(|_| NoAnswer::NotOffered(format!("{reason}, without JSON")))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(NoAnswer::Refused(reason)),
            _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(NoAnswer::Unreachable(reason))
            }
            _ => Err(NoAnswer::NotOffered(reason)),
        }
    }
}
