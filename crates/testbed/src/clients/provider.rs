//! The sandbox provider in a process of its own, so that it survives the service; what it charges is its own matter.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use serde::{Deserialize, de::DeserializeOwned};

use super::{http, program::supervised};
use crate::supervised::Supervised;

/// How long the provider may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(10);
/// What stands before its URL.
const ANNOUNCEMENT: &str = "sandbox provider: PAYMENT_URL=";
/// Charges asked for at once.
const PAGE: usize = 10_000;

/// How the provider behaves; by default it charges everything at once.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// How long each answer takes, in milliseconds.
    pub latency_ms: u64,
    /// The share of keys that meet faults.
    pub fault_share: f64,
    /// How many tries of such a key meet one, at most.
    pub max_faults_per_key: u32,
    /// The share of keys that are declined.
    pub decline_share: f64,
    /// What all of it is drawn from.
    pub seed: u64,
}

impl Default for ProviderOptions {
    fn default() -> Self {
        Self { latency_ms: 0, fault_share: 0.0, max_faults_per_key: 2, decline_share: 0.0, seed: 1 }
    }
}

/// A charge on the provider's books.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProviderCharge {
    /// The provider's name of it.
    pub id: String,
    /// The key it was asked with.
    pub idempotency_key: String,
    /// The order.
    pub order_id: String,
    /// Who paid.
    pub customer_id: String,
    /// In minor units.
    pub amount: i64,
    /// The currency.
    pub currency: String,
    /// `succeeded`: the money moved; else `pending` or `failed`.
    pub status: String,
}

/// The provider's counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ProviderSummary {
    /// Charges that moved money.
    pub charges: u64,
    /// Charges that were declined.
    pub declined: u64,
    /// Keys that were ever sent.
    pub distinct_keys: u64,
    /// Orders for which money moved.
    pub distinct_orders: u64,
    /// Calls that carried a key.
    pub calls: u64,
    /// Calls that were answered from an earlier one.
    pub replays: u64,
    /// Calls whose key was in flight (409).
    pub conflicts: u64,
    /// Calls whose key had come with another body (422).
    pub key_reuses: u64,
    /// Calls without a key, or with a body that says nothing (400).
    pub invalid: u64,
    /// Calls that were turned away (401).
    pub unauthorized: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<String, u64>,
}

/// A running `app-billing sandbox-provider`. It ends with us; dropping it kills it, and its record is gone.
#[derive(Debug)]
pub struct ProviderProcess {
    process: Supervised,
    url: String,
}

impl ProviderProcess {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When the program is not built, or the provider does not start; the error has its output's tail.
    pub async fn start(options: &ProviderOptions) -> Result<Self> {
        let ProviderOptions { latency_ms, fault_share, max_faults_per_key, decline_share, seed } = options;
        let arguments = [
            "sandbox-provider".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            format!("--latency-ms={latency_ms}"),
            format!("--fault-share={fault_share}"),
            format!("--max-faults-per-key={max_faults_per_key}"),
            format!("--decline-share={decline_share}"),
            format!("--seed={seed}"),
        ];
        let arguments = arguments.each_ref().map(String::as_str);
        let mut process = supervised("the sandbox provider", &arguments, &[])?;
        process.launch(START_LIMIT, |process, begin| url(&process.log_from(begin)).is_some()).await?;
        let url = url(&process.log_from(0)).context("the URL was just there")?;
        Ok(Self { process, url })
    }

    /// The base URL, for `PAYMENT_URL`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process.process_id()
    }

    /// Its counts.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn summary(&self) -> Result<ProviderSummary> {
        self.ask("/charges/summary").await
    }

    /// All charges on its books, in the order in which they were made.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn all_charges(&self) -> Result<Vec<ProviderCharge>> {
        let mut charges = Vec::new();
        let mut after = Some(0);
        while let Some(from) = after {
            let page: Page = self.ask(&format!("/charges?after={from}&limit={PAGE}")).await?;
            charges.extend(page.charges);
            after = page.next;
        }
        Ok(charges)
    }

    /// Adds faults to those of the options, until the next ones are set; `{}` ends them. The words are the provider's own.
    ///
    /// # Errors
    /// When it does not know them, or does not answer.
    pub async fn set_faults(&self, faults: &str) -> Result<()> {
        http::post(self.address(), "/faults", faults).await?.ok().map(drop)
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = http::get(self.address(), path).await?.ok()?;
        serde_json::from_str(&body).with_context(|| format!("cannot read the provider's {path}"))
    }
}

#[derive(Deserialize)]
struct Page {
    charges: Vec<ProviderCharge>,
    next: Option<usize>,
}

/// The URL, once its whole line is there.
fn url(output: &str) -> Option<String> {
    let (_, rest) = output.split_once(ANNOUNCEMENT)?;
    let (url, _) = rest.split_once('\n')?;
    Some(url.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_read_once_its_line_is_whole() {
        assert_eq!(url("x\nsandbox provider: PAYMENT_URL=http://127.0.0.1:47"), None);
        let output = "x\nsandbox provider: PAYMENT_URL=http://127.0.0.1:4711\ny";
        assert_eq!(url(output), Some("http://127.0.0.1:4711".to_owned()));
    }
}
