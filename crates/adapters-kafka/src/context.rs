//! What librdkafka says from its side: log lines and errors. It remembers the last error of a client, because only
//! the error callback carries the reason; it decides nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::Statistics;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use tracing::{debug, error, info, warn};

/// librdkafka repeats the error of a broker that stays away at least every 30 s: what was silent for longer is over.
const OVER_AFTER: Duration = Duration::from_secs(75);
/// One kind of error is logged once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// How a client is connected, as far as it told.
#[derive(Debug, Default)]
pub struct ClientHealth {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trouble: Option<(Trouble, Instant)>,
    logged: HashMap<i32, Instant>,
}

/// What is wrong with a client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The client's last words, such as "invalid credentials" or "Connection refused".
    pub text: String,
    /// Since when there has been an error, without a success in between.
    pub since: Instant,
}

impl ClientHealth {
    /// The trouble that the client is in. `None` after a success (records, an assignment, an acknowledged commit or
    /// publish), or if no error came for 75 s.
    pub fn trouble(&self) -> Option<Trouble> {
        let state = self.state();
        let (trouble, latest) = state.trouble.as_ref()?;
        (latest.elapsed() < OVER_AFTER).then(|| trouble.clone())
    }

    /// The last error's text, if the client is in trouble.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.trouble().map(|trouble| trouble.text)
    }

    /// Waits until the client has told an error, at most a moment: a call fails at once, and the callback with the
    /// reason runs a little later on another thread.
    pub(crate) async fn wait_for_words(&self) {
        for _ in 0..10 {
            if self.trouble().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Notes an error. True if it should be logged: the first of its kind for a while.
    pub(crate) fn failed(&self, code: RDKafkaErrorCode, text: &str) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let earlier = state.trouble.take().filter(|(_, latest)| now - *latest < OVER_AFTER);
        let trouble = match earlier {
            // It only sums up what was told with a reason before.
            Some((trouble, _)) if code == RDKafkaErrorCode::AllBrokersDown => trouble,
            Some((trouble, _)) => Trouble { text: text.to_owned(), since: trouble.since },
            None => Trouble { text: text.to_owned(), since: now },
        };
        state.trouble = Some((trouble, now));
        let is_due = state.logged.get(&(code as i32)).is_none_or(|logged| now - *logged >= LOG_INTERVAL);
        if is_due {
            state.logged.insert(code as i32, now);
        }
        is_due
    }

    /// Notes a success.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state();
        if state.trouble.take().is_some() {
            state.logged.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callbacks that all clients share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) health: Arc<ClientHealth>,
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                error!(target: "librdkafka", facility, text, "kafka client");
            }
            RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
                warn!(target: "librdkafka", facility, text, "kafka client");
            }
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                info!(target: "librdkafka", facility, text, "kafka client");
            }
            RDKafkaLogLevel::Debug => debug!(target: "librdkafka", facility, text, "kafka client"),
        }
    }

    // The default parses and logs them.
    fn stats(&self, _: Statistics) {}
    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: ClientError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if self.health.failed(code, reason) {
            warn!(error = reason, code = ?code, "kafka client reports an error");
        }
    }
}

impl ConsumerContext for Callbacks {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_remembered_with_the_start_of_the_trouble() {
        let health = ClientHealth::default();
        assert_eq!(health.trouble(), None);
        assert!(health.failed(RDKafkaErrorCode::BrokerTransportFailure, "connection refused"));
        let first = health.trouble().expect("in trouble");
        assert!(!health.failed(RDKafkaErrorCode::BrokerTransportFailure, "connection refused again"));
        let second = health.trouble().expect("in trouble");
        assert_eq!(second.text, "connection refused again");
        assert_eq!(second.since, first.since);
        assert!(health.failed(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down"));
        assert_eq!(health.trouble(), Some(second), "the reason says more than the sum");
    }

    #[test]
    fn a_success_ends_the_trouble() {
        let health = ClientHealth::default();
        assert!(health.failed(RDKafkaErrorCode::AllBrokersDown, "all brokers are down"));
        health.succeeded();
        assert_eq!(health.trouble(), None);
        assert!(health.failed(RDKafkaErrorCode::AllBrokersDown, "down"), "a new trouble is logged again");
    }
}
