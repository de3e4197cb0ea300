//! How the service ends: drained when it is asked, at any instant when it is killed.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;

use crate::world::World;

/// SIGTERM with calls in flight: they are finished and committed, the exit code is 0, and the next start finds
/// nothing to do twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_runs_and_commits_it() -> Result<()> {
    let world = World::new(2, ProviderSettings { latency_ms: 1_000, ..ProviderSettings::default() }).await?;
    let orders = sample_orders(200);
    world.send(&orders).await?;
    let mut service = world.service_with(&[("BATCH_MAX", "25")]).await?;
    world.until("calls in flight", async || world.provider.record().summary.calls > 0).await?;
    service.terminate()?;
    let status = service.wait(Duration::from_secs(20)).await?;
    ensure!(status.success(), "{status}");

    let charged = world.ledger.charge_count().await?;
    ensure!(charged > 0 && charged < 200, "stopped in the middle: {charged}");
    ensure!(world.provider.record().summary.calls as usize == charged, "every call that was made is in the ledger");
    let committed = world.kafka.committed(&world.group, &world.topic, 2).await?;
    let committed: i64 = committed.into_iter().map(|offset| offset.unwrap_or(0)).sum();
    ensure!(committed as usize == charged, "what is settled is committed, and no more: {committed}, {charged}");

    let _service = world.service().await?;
    world.settled(200).await?;
    ensure!(world.provider.record().summary.calls == 200);
    world.charged_exactly(&orders).await
}

/// Killed at any instant, over and over: each order is charged once.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_a_loop_each_order_is_charged_once() -> Result<()> {
    let faults = ProviderSettings { fault_share: 0.1, latency_ms: 10, slow_ms: 100, ..ProviderSettings::default() };
    let world = World::new(2, faults).await?;
    let orders = sample_orders(2_000);
    world.send(orders.iter().chain(&orders[..200])).await?;
    let settings = [("BATCH_MAX", "100"), ("CALLS_MAX", "32"), ("KAFKA_SESSION_TIMEOUT", "3s"), ("DRAIN_LIMIT", "2s")];
    for round in 1..=5 {
        let mut service = world.service_with(&settings).await?;
        let mark = round * 300;
        world
            .until(&format!("{mark} charges"), async || {
                world.ledger.charge_count().await.is_ok_and(|count| count >= mark)
            })
            .await?;
        service.kill9().await?;
    }
    let _service = world.service_with(&settings).await?;
    world.settled(2_000).await?;
    ensure!(world.dead_letters().await?.is_empty());
    world.charged_exactly(&orders).await
}
