//! (a) What the database alone can do: claims and rows in batches, from as many tasks as there are lanes, without
//! Kafka, the kernel or any decoding.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use core_delivery::{
    claim::{Claim, ConsumerGroup, DedupKey},
    ports::{UnitOfWork, UnitOfWorkFactory},
};
use core_order::{Event, OrderConfirmed};
use infra_postgres::PgStore;
use tokio::task::JoinSet;

use crate::{
    table::{self, Database},
    world::{LANES, Measured, Running, World},
};

pub(crate) async fn run(world: &World, events: &[OrderConfirmed], batch_max: usize) -> Result<Measured> {
    let database = Database::prepare(&world.database("limit").await?).await?;
    let events: Arc<[OrderConfirmed]> = events.into();
    let running = Running::begin(world.processes)?;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        lanes.spawn(write_lane(database.store.clone(), Arc::clone(&events), lane, batch_max));
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let measured = running.end(events.len())?;
    let expected = i64::try_from(events.len())?;
    let counts = database.counts().await?;
    ensure!(counts == (expected, expected), "claims and rows are {counts:?}, not {expected} each");
    Ok(measured)
}

/// Every sixth event, as a partition would have them.
async fn write_lane(store: PgStore, events: Arc<[OrderConfirmed]>, lane: usize, batch_max: usize) -> Result<()> {
    let group = ConsumerGroup::new("bench-limit");
    let ours: Vec<&OrderConfirmed> = events.iter().skip(lane).step_by(LANES).collect();
    for batch in ours.chunks(batch_max) {
        let mut keys: Vec<_> = batch.iter().map(|event| DedupKey::new(event.id(), group.clone())).collect();
        keys.sort_unstable();
        let mut unit = store.begin().await?;
        let claims = unit.claim(&keys).await?;
        ensure!(claims.iter().all(|claim| *claim == Claim::Fresh), "an event was claimed before");
        table::insert(&mut unit, batch).await?;
        unit.commit().await.context("commit")?;
    }
    Ok(())
}
