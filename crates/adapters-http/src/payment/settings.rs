//! What the gateway needs to know. No default for what only an operator can know.

use std::time::Duration;

use core_delivery::ports::BoxError;

use super::secret::Secret;

/// Where the provider is and how long it may take.
#[derive(Debug, Clone)]
pub struct PaymentSettings {
    /// The base of the API, `http` or `https`, with or without a slash at the end. Charges go to `{base}/charges`.
    pub base_url: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Whether the provider offers `GET {base}/charges?idempotency_key=`. If not, it is never asked.
    pub look_up: bool,
    /// How long a connection, TLS included, may take to be made.
    pub connect_timeout: Duration,
    /// How long a whole call may take, from the connection to the last byte of the answer.
    pub call_timeout: Duration,
    /// How many calls will be in flight at once: so many connections are kept. It is no limit.
    pub max_in_flight: usize,
}

impl PaymentSettings {
    /// The defaults: 2 s to connect, 10 s for a call, 256 calls in flight, no API key, no look-up.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            look_up: false,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(10),
            max_in_flight: 256,
        }
    }
}

/// Why a gateway cannot be made of the settings. No text of it shows the URL, which may hold a password, or the key.
#[derive(Debug, thiserror::Error)]
pub enum PaymentConfigError {
    /// Not a URL.
    #[error("the payment URL is not a URL")]
    Url(#[source] BoxError),
    /// Only HTTP is spoken.
    #[error("the payment URL has the scheme {0:?}, expected http or https")]
    Scheme(String),
    /// A URL ends up in logs, so it is no place for credentials.
    #[error("the payment URL holds credentials; pass the API key separately")]
    Credentials,
    /// `/charges` could not be appended.
    #[error("the payment URL has a query or a fragment")]
    QueryOrFragment,
    /// It cannot be sent in a header.
    #[error("the payment API key is empty or has characters that a header cannot carry")]
    ApiKey,
    /// No call could succeed.
    #[error("a timeout of the payment client is zero")]
    Timeout,
    /// The HTTP client cannot be made, mostly because there are no CA certificates on this machine.
    #[error("the payment client cannot be made")]
    Client(#[source] BoxError),
}
