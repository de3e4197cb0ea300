//! What runs beside the consumer, on the maintenance connection: the partitions of the coming days, and a look at the
//! clocks. It never touches a claim.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::delivery::{Health, check_clocks};
use core_delivery::ports::{Runtime, error_chain};
use infra_postgres::{PartitionPlan, database_clock, ensure_partitions};
use sqlx::PgPool;
use tokio::sync::watch;

/// How often the partitions are looked after. They are made a week ahead, so many failures do no harm.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// After a failure it is tried again this soon.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Keeps the partitions of the coming days in place until `stop` is set or dropped.
pub async fn keep_partitions(
    pool: PgPool,
    plan: PartitionPlan,
    runtime: Arc<dyn Runtime>,
    health: Health,
    mut stop: watch::Receiver<bool>,
) {
    const PLACE: &str = "partitions";
    loop {
        let wait = match ensure_partitions(&pool, plan.days(runtime.now())).await {
            Ok(_) => {
                health.clear(PLACE);
                INTERVAL
            }
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "partitions not made");
                health.report(PLACE, error_chain(&error));
                AFTER_FAILURE
            }
        };
        tokio::select! {
            () = runtime.sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// How often this machine's clock is held against the database's.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// Halts intake for as long as this machine's clock and the database's disagree, until `stop` is set or dropped.
pub async fn watch_clock(pool: PgPool, runtime: Arc<dyn Runtime>, health: Health, mut stop: watch::Receiver<bool>) {
    const PLACE: &str = "clock";
    loop {
        match database_clock(&pool).await.map(|database| check_clocks(runtime.now(), database)) {
            Ok(Ok(())) => health.clear(PLACE),
            Ok(Err(reason)) => {
                tracing::error!(error = reason, "the clocks disagree, intake halts");
                health.halt(PLACE, reason);
            }
            // An unreachable database halts its lanes by itself.
            Err(error) => tracing::debug!(error = error_chain(&error), "the database's clock is unknown"),
        }
        tokio::select! {
            () = runtime.sleep(CLOCK_INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
