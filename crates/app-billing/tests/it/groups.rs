//! Several processes at once: racing for the same events, and taking partitions over while work is in flight.

use anyhow::{Result, ensure};
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;

use crate::world::{World, verdicts};

/// Two instances start at the same time on the same events: partitions move between them while both work, and the
/// database decides who was first.
#[tokio::test(flavor = "multi_thread")]
async fn two_instances_that_race_for_every_event_charge_each_once() -> Result<()> {
    let world = World::new(2, ProviderSettings { latency_ms: 5, ..ProviderSettings::default() }).await?;
    let orders = sample_orders(400);
    world.send(&orders).await?;
    let (one, two) = tokio::try_join!(world.service(), world.service())?;
    world.settled(400).await?;
    world.charged_exactly(&orders).await?;
    let applied = verdicts(&one, "applied").await? + verdicts(&two, "applied").await?;
    ensure!(applied == 400, "{applied}");
    ensure!(world.provider.record().summary.conflicts == 0, "never two calls for one event at a time");
    Ok(())
}

/// A second instance joins while calls of the first are in flight: what runs is finished and committed by its
/// owner before the partition moves, so nothing is called twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebalance_with_work_in_flight_loses_and_repeats_nothing() -> Result<()> {
    let world = World::new(4, ProviderSettings { latency_ms: 1_500, ..ProviderSettings::default() }).await?;
    let orders = sample_orders(300);
    let one = world.service_with(&[("BATCH_MAX", "20")]).await?;
    world.send(&orders).await?;
    world.until("calls in flight", async || world.provider.record().summary.calls > 0).await?;
    let two = world.service_with(&[("BATCH_MAX", "20")]).await?;
    world.settled(300).await?;
    world.charged_exactly(&orders).await?;
    let shares = (verdicts(&one, "applied").await?, verdicts(&two, "applied").await?);
    ensure!(shares.0 + shares.1 == 300 && shares.1 > 0, "both worked: {shares:?}");
    ensure!(world.provider.record().summary.calls == 300, "no call was made twice");
    Ok(())
}
