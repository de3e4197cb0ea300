//! What runs beside the consumer, on the maintenance connection: the partitions of the coming days. It never
//! touches a claim.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::delivery::Health;
use core_delivery::ports::{Runtime, error_chain};
use infra_postgres::{PartitionPlan, ensure_partitions};
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
