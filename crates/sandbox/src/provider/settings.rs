//! How the provider behaves. Plain fields, so that a command line can fill them; no behaviour.

use std::fmt;
use std::net::SocketAddr;

use super::faults::FaultKind;

/// The behaviour of the provider. The default charges everything at once, without a fault.
#[derive(Clone)]
pub struct ProviderSettings {
    /// If set, every call must carry `Authorization: Bearer <api_key>`.
    pub api_key: Option<String>,
    /// Whether `GET /charges?idempotency_key=` is offered. If not, it answers 404.
    pub look_up: bool,
    /// A key that was answered is answered with 409 from then on, as some providers do, instead of with the same
    /// answer again.
    pub conflict_when_done: bool,
    /// What the faults and the declines are drawn from: the same seed, keys and tries give the same faults.
    pub seed: u64,
    /// The share of keys that suffer faults, from 0 to 1.
    pub fault_share: f64,
    /// A key that suffers does so in 1 to this many of its first tries, and then works.
    pub max_faults_per_key: u32,
    /// The kinds of faults to draw from.
    pub fault_kinds: Vec<FaultKind>,
    /// The share of keys that are declined, from 0 to 1.
    pub decline_share: f64,
    /// How long every charge takes, in milliseconds. It goes on when the caller has left.
    pub latency_ms: u64,
    /// How much longer a charge takes that suffers [`FaultKind::SlowAnswer`], in milliseconds.
    pub slow_ms: u64,
}

impl Default for ProviderSettings {
    fn default() -> Self {
        Self {
            api_key: None,
            look_up: true,
            conflict_when_done: false,
            seed: 1,
            fault_share: 0.0,
            max_faults_per_key: 2,
            fault_kinds: FaultKind::ALL.to_vec(),
            decline_share: 0.0,
            latency_ms: 0,
            slow_ms: 1_500,
        }
    }
}

impl ProviderSettings {
    pub(super) fn check(&self) -> Result<(), StartError> {
        for (name, share) in [("fault_share", self.fault_share), ("decline_share", self.decline_share)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(StartError::Settings(format!("{name} is {share}, expected 0 to 1")));
            }
        }
        if self.fault_share > 0.0 && self.fault_kinds.is_empty() {
            return Err(StartError::Settings("fault_share is above 0 without any fault kind".to_owned()));
        }
        if self.api_key.as_ref().is_some_and(String::is_empty) {
            return Err(StartError::Settings("the API key is empty".to_owned()));
        }
        Ok(())
    }
}

/// Without the API key.
impl fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("api_key", &self.api_key.as_ref().map(|_| "set"))
            .field("look_up", &self.look_up)
            .field("conflict_when_done", &self.conflict_when_done)
            .field("seed", &self.seed)
            .field("fault_share", &self.fault_share)
            .field("max_faults_per_key", &self.max_faults_per_key)
            .field("fault_kinds", &self.fault_kinds)
            .field("decline_share", &self.decline_share)
            .field("latency_ms", &self.latency_ms)
            .field("slow_ms", &self.slow_ms)
            .finish()
    }
}

/// Why the provider did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict themselves.
    #[error("the provider's settings are wrong: {0}")]
    Settings(String),
    /// The address cannot be listened on.
    #[error("the provider cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}
