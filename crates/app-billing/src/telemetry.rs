//! Logs and metrics of the process: how they leave it. What is logged and counted is decided where it happens.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::{Context, Error};
use core_delivery::delivery::describe_metrics;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Renders the metrics.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Sends logs to standard error, so that standard output belongs to the commands.
pub fn install_logs(filter: &str, format: LogFormat) -> Result<(), Error> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("LOG={filter:?} is not a log filter"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Installs the recorder of this process and returns what renders it.
pub fn install_metrics() -> Result<MetricsText, Error> {
    const SECONDS: &[f64] = &[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    const EVENTS: &[f64] = &[1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_000.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), EVENTS))
        .context("the histogram buckets are not accepted")?
        .install_recorder()
        .context("a metrics recorder is already installed")?;
    describe_metrics();
    let upkeep = handle.clone();
    // Without it the exporter keeps every histogram sample that nobody has scraped.
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(std::time::Duration::from_secs(5));
        loop {
            tick.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(Arc::new(move || handle.render()))
}
