//! A line of progress now and then, in a task of its own; whoever is away meanwhile is simply not asked.

use std::{sync::Arc, time::Duration};

use testbed::clients::{Ledger, ProviderProcess};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// How often a line is printed.
const EVERY: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(2);

/// Prints until it is dropped.
pub(super) struct Progress(JoinHandle<()>);

impl Progress {
    pub(super) fn start(ledger: Ledger, provider: Arc<ProviderProcess>, expected: usize) -> Self {
        Self(tokio::spawn(async move {
            let begun = Instant::now();
            loop {
                sleep(EVERY).await;
                let charged = timeout(ANSWER, ledger.charge_count()).await.ok().and_then(Result::ok);
                let charged = charged.map_or_else(|| "?".to_owned(), |count| count.to_string());
                let asked = timeout(ANSWER, provider.summary()).await.ok().and_then(Result::ok).unwrap_or_default();
                println!(
                    "{:6.1} s      {charged} of {expected} applied, the provider charged {} in {} calls",
                    begun.elapsed().as_secs_f32(),
                    asked.charges,
                    asked.calls
                );
            }
        }))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.abort();
    }
}
