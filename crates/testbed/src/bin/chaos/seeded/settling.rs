//! The wait until nothing is due or in flight any more, for as long as there is progress.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::{fleet::Fleet, world::World};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing may change: longer than the longest tier and every limit of the service.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take in all.
const LIMIT: Duration = Duration::from_secs(420);

/// What is still before the group in the end: 0 is what is wanted.
pub(super) async fn until_settled(world: &World, fleet: &Fleet) -> Result<i64> {
    let begun = Instant::now();
    let mut seen = (i64::MAX, Instant::now());
    let mut printed = Instant::now();
    loop {
        let lag = world.lag().await?;
        if lag != seen.0 {
            seen = (lag, Instant::now());
        }
        // Twice in a row: nothing was on its way from one topic to the next.
        if lag == 0 && seen.1.elapsed() >= LOOK {
            return Ok(0);
        }
        if seen.1.elapsed() > PATIENCE || begun.elapsed() > LIMIT {
            return Ok(lag.max(1));
        }
        if printed.elapsed() > 10 * LOOK {
            println!("              {lag} records before the group; {}", fleet.readiness().await);
            printed = Instant::now();
        }
        sleep(LOOK).await;
    }
}
