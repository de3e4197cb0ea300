//! A caller of the provider for tests.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use sandbox::provider::{Provider, ProviderSettings};

pub(crate) const BODY: &str = r#"{"order_id":"o-1","customer_id":"c-1","amount":1250,"currency":"EUR"}"#;

pub(crate) async fn start(settings: ProviderSettings) -> (Provider, Caller) {
    let provider = Provider::start(([127, 0, 0, 1], 0).into(), settings).await.expect("a free port");
    let client = Client::builder().no_proxy().retry(reqwest::retry::never()).timeout(Duration::from_secs(20));
    let caller = Caller { client: client.build().unwrap(), base: provider.base_url() };
    (provider, caller)
}

#[derive(Clone)]
pub(crate) struct Caller {
    client: Client,
    base: String,
}

impl Caller {
    pub(crate) async fn send(&self, key: &str, body: &str) -> Result<Response, reqwest::Error> {
        let url = format!("{}/charges", self.base);
        self.client.post(url).header("Idempotency-Key", key).body(body.to_owned()).send().await
    }

    /// Status and body; panics if the connection breaks.
    pub(crate) async fn charge(&self, key: &str, body: &str) -> (StatusCode, String) {
        let response = self.send(key, body).await.expect("an answer");
        (response.status(), response.text().await.expect("a whole body"))
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let response = self.client.get(format!("{}{path}", self.base)).send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        response.text().await.expect("a whole body")
    }

    pub(crate) async fn status(&self, path: &str) -> StatusCode {
        self.client.get(format!("{}{path}", self.base)).send().await.expect("an answer").status()
    }

    /// Sets faults; the status of the answer.
    pub(crate) async fn faults(&self, body: &str) -> StatusCode {
        let request = self.client.post(format!("{}/faults", self.base)).body(body.to_owned());
        request.send().await.expect("an answer").status()
    }

    pub(crate) fn post(&self) -> reqwest::RequestBuilder {
        self.client.post(format!("{}/charges", self.base))
    }
}

/// Waits for a condition, with a limit.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}
