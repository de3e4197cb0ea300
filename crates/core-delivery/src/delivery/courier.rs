//! Sends a copy until the broker has acknowledged it. It never gives up and never reports success early: the
//! offset waits for it (R-KFK-CONS-2).

use crate::headers::without_foreign_headers;
use crate::ports::{PublishError, Publisher, Runtime, error_chain};
use crate::record::{Assignment, OutgoingRecord};

use super::backoff::{Backoff, jitter};
use super::health::{Health, Place};
use super::metrics::DeliveryMetrics;

/// Health's entry of this courier: gone with it, whatever becomes of the copy.
struct Trouble<'a> {
    health: &'a Health,
    place: Place,
}

impl Drop for Trouble<'_> {
    fn drop(&mut self) {
        self.health.clear(self.place.clone());
    }
}

/// Completes when the copy is acknowledged. Cancelling it can leave a second copy behind, never lose one.
pub(super) async fn deliver(
    publisher: &dyn Publisher,
    runtime: &dyn Runtime,
    health: &Health,
    metrics: &DeliveryMetrics,
    from: &Assignment,
    mut copy: OutgoingRecord,
) {
    let trouble = Trouble { health, place: Place::of(from, format!("copies to {} of {}", copy.topic, from.lane)) };
    let mut failures = 0;
    let mut cut = false;
    while let Err(error) = publisher.publish(&copy).await {
        metrics.copy_failures.increment(1);
        if matches!(error, PublishError::TooLarge { .. }) && !cut {
            tracing::warn!(topic = %copy.topic, "copy is too large, its foreign headers are cut");
            copy = without_foreign_headers(copy);
            cut = true;
            continue;
        }
        failures += 1;
        let reason = error_chain(&error);
        if failures == 1 {
            tracing::warn!(topic = %copy.topic, error = reason, "copy not acknowledged, its offset waits");
        }
        health.report(trouble.place.clone(), reason);
        runtime.sleep(Backoff::INFRASTRUCTURE.delay(failures, jitter())).await;
    }
    if failures > 0 {
        tracing::info!(topic = %copy.topic, failures, "copy acknowledged after failures");
    }
}
