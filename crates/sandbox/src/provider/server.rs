//! The provider as a thing to start, ask and stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::connection;
use super::ledger::Ledger;
use super::record::{ProviderRecord, ProviderSummary};
use super::routes::{Shared, router};
use super::settings::{ProviderSettings, StartError};

/// A running provider. It stops when it is dropped.
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl Provider {
    /// Listens on the address (port 0: any free one) and serves on the caller's runtime.
    pub async fn start(addr: SocketAddr, settings: ProviderSettings) -> Result<Self, StartError> {
        settings.check()?;
        let refused = |source| StartError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let ledger = Ledger::new(settings.clone());
        let shared = Arc::new(Shared { ledger, settings, waiting: watch::Sender::new(0) });
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(connection::serve(listener, router(Arc::clone(&shared)), stopped));
        Ok(Self { addr, shared, stop, server: Some(server) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL of its API, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A copy of everything it was asked and did. Also after it was stopped.
    pub fn record(&self) -> ProviderRecord {
        self.shared.ledger.record()
    }

    /// The counts, which are cheap at any size of the record.
    pub fn summary(&self) -> ProviderSummary {
        self.shared.ledger.summary()
    }

    /// Forgets every idempotency key that was answered, as a provider does after its key lifetime: the next call with
    /// such a key charges again. The record and the look-up keep what was charged.
    pub fn forget_keys(&self) {
        self.shared.ledger.forget_keys();
    }

    /// Stops listening and ends when the calls in flight are answered and their charges made, at most after some
    /// seconds. Stopping again does nothing.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        let Some(server) = self.server.take() else { return };
        if let Err(error) = server.await {
            tracing::error!(%error, "the provider's server panicked");
        }
        let slowest = self.shared.settings.latency_ms.saturating_add(self.shared.settings.slow_ms);
        let limit = Duration::from_millis(slowest).saturating_add(Duration::from_secs(1));
        let mut waiting = self.shared.waiting.subscribe();
        if tokio::time::timeout(limit, waiting.wait_for(|count| *count == 0)).await.is_err() {
            tracing::warn!("the provider stopped before all charges were made");
        }
    }
}
