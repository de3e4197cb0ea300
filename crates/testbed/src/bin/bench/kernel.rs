//! (b) The kernel alone, from the first record of the topic to the last commit; the consumer is composed elsewhere.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::timeout;

use crate::{
    consuming::Consuming,
    table::Database,
    world::{Measured, World},
};

const GROUP: &str = "bench-kernel";
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) async fn run(world: &World, events: usize, batch_max: usize) -> Result<Measured> {
    let database = Database::prepare(&world.database("kernel").await?).await?;
    let consuming = Consuming::start(world, &database, GROUP, events, batch_max).await?;
    let done = timeout(LIMIT, consuming.progress.finished.notified()).await;
    let running = consuming.take_running();
    done.with_context(|| format!("{} of {events} committed", consuming.progress.committed()))?;
    let measured = running?.end(events)?;
    consuming.stop().await?;
    world.assert_settled(GROUP).await?;
    let expected = i64::try_from(events)?;
    let counts = database.counts().await?;
    ensure!(counts == (expected, expected), "claims and rows are {counts:?}, not {expected} each");
    Ok(measured)
}
