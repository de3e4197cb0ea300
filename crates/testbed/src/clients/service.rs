//! The real service as a process: started, asked, killed; it is configured by nothing but the variables it is given.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    http,
    program::{supervised, supervised_beside},
};
use crate::{supervised::Supervised, wait::wait_until_now};

/// How long the service may take from its start to the address where it is asked.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The line of the log that has the address.
const SERVING: &str = "serving /live, /ready and /metrics";
/// What a program logs once it consumes.
const CONSUMING: &str = "consuming";

/// A running (or ended) `app-billing`. It ends with us, even at a kill -9; dropping it kills it.
#[derive(Debug)]
pub struct Service {
    process: Supervised,
    address: String,
}

impl Service {
    /// Starts the program of `TEST_APP_BILLING`, else the one built with this test, with these variables and none of
    /// ours, its operations port free and its log as JSON. Returns when it serves `/live`; ready it is later.
    ///
    /// # Errors
    /// When it is not built, or ends before it serves; the error has its log's tail.
    pub async fn start(variables: &[(&str, &str)]) -> Result<Self> {
        let ours = [("HTTP_ADDR", "127.0.0.1:0"), ("LOG_FORMAT", "json")];
        let mut process = supervised("app-billing", &["run"], &[&ours, variables].concat())?;
        process.launch(START_LIMIT, |process, begin| address(&process.log_from(begin)).is_some()).await?;
        let address = address(&process.log_from(0)).context("the address was just there")?;
        Ok(Self { process, address })
    }

    /// Starts another program that consumes and was built beside this one, with these variables and none of ours. Returns
    /// when it has logged `consuming`. It serves nothing, so it is never said to be ready.
    ///
    /// # Errors
    /// When it is not built, or ends before it consumes; the error has its log's tail.
    pub async fn start_beside(program: &'static str, variables: &[(&str, &str)]) -> Result<Self> {
        let mut process = supervised_beside(program, variables)?;
        process.launch(START_LIMIT, |process, begin| process.log_from(begin).contains(CONSUMING)).await?;
        Ok(Self { process, address: String::new() })
    }

    /// Kills it (`SIGKILL`): it can neither finish nor say anything. Returns when it is gone.
    ///
    /// # Errors
    /// When it is not gone within 10 s.
    pub async fn kill9(&mut self) -> Result<()> {
        Ok(self.process.stop("KILL", KILL_LIMIT).await?)
    }

    /// Asks it to stop (`SIGTERM`); [`wait`](Self::wait) for its end.
    ///
    /// # Errors
    /// When its supervisor has ended.
    pub fn terminate(&mut self) -> Result<()> {
        Ok(self.process.order("TERM")?)
    }

    /// Makes it stand still (`SIGSTOP`), as a long pause of the machine would.
    ///
    /// # Errors
    /// When its supervisor has ended.
    pub fn suspend(&mut self) -> Result<()> {
        Ok(self.process.order("STOP")?)
    }

    /// Lets it go on (`SIGCONT`).
    ///
    /// # Errors
    /// When its supervisor has ended.
    pub fn resume(&mut self) -> Result<()> {
        Ok(self.process.order("CONT")?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs after `limit`; the error has its log's tail.
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        wait_until_now("the service to end", limit, || self.process.exit_status().is_some())
            .await
            .with_context(|| format!("its log ends:\n{}", self.process.log_tail()))?;
        self.ended().context("its exit status was just there")
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        // The shell adds 128 to a signal's number.
        let status: i32 = self.process.exit_status()?.parse().ok()?;
        Some(ExitStatus::from_raw(if status > 128 { status - 128 } else { status << 8 }))
    }

    /// The process id.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process.process_id()
    }

    /// Where it serves `/live`, `/ready` and `/metrics`, `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it says that it is ready; a service that does not answer is not.
    pub async fn ready(&self) -> bool {
        http::get(&self.address, "/ready").await.is_ok_and(|response| response.status == 200)
    }

    /// Status and text of `/ready`, with the reasons for a no.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        http::get(&self.address, "/ready").await.map(|response| (response.status, response.body))
    }

    /// Its metrics, in Prometheus' text format.
    ///
    /// # Errors
    /// When it does not answer, or with another status than 200.
    pub async fn metrics(&self) -> Result<String> {
        http::get(&self.address, "/metrics").await?.ok()
    }

    /// Everything it has logged, one JSON object a line.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log_from(0)
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// Where the service serves, once its log says so.
fn address(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(SERVING))?;
    let entry: Value = serde_json::from_str(line).ok()?;
    entry.get("addr")?.as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_log() {
        let line = r#"{"timestamp":"2026-12-01T10:00:00Z","level":"INFO","message":"serving /live, /ready and /metrics","addr":"127.0.0.1:4711","target":"app_billing::compose"}"#;
        assert_eq!(address(&format!("{{}}\n{line}\n")), Some("127.0.0.1:4711".to_owned()));
        assert_eq!(address(&line[..line.len() - 9]), None, "a line that is still being written");
        assert_eq!(address(""), None);
    }
}
