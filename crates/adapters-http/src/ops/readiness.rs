//! The routes of the probes and of the metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

/// Knows whether the service can do its work.
pub trait ReadinessSource: Send + Sync + 'static {
    /// Why it cannot, one sentence each; empty if it can. Must answer at once, from what is known.
    fn reasons(&self) -> Vec<String>;
}

/// Renders the metrics in Prometheus' text format.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// The routes.
///
/// - `GET /live`: 200 for as long as the process answers, whatever its dependencies do.
/// - `GET /ready`: 200 or 503 with `{"ready":bool,"reasons":[…]}`.
/// - `GET /metrics`: text.
pub fn router(readiness: Arc<dyn ReadinessSource>, metrics: MetricsText) -> Router {
    Router::new()
        .route("/live", get(|| async { ([(header::CACHE_CONTROL, "no-store")], "live\n") }))
        .route("/ready", get(ready).with_state(readiness))
        .route("/metrics", get(text).with_state(metrics))
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    reasons: Vec<String>,
}

async fn ready(State(readiness): State<Arc<dyn ReadinessSource>>) -> impl IntoResponse {
    let reasons = readiness.reasons();
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(Ready { ready, reasons }))
}

async fn text(State(metrics): State<MetricsText>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics())
}
