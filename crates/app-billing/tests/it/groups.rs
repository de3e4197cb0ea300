//! Several processes at once: racing for the same events, and taking partitions over while work is in flight.

use anyhow::{Context, Result, ensure};
use sandbox::provider::ProviderSettings;
use testbed::clients::{Service, sample_orders};

use crate::world::{TIERS, World, verdicts};

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

/// How many partitions an instance says that it owns.
async fn lanes(service: &Service) -> Result<usize> {
    let metrics = service.metrics().await?;
    let line = metrics.lines().find(|line| line.starts_with("delivery_lanes{")).context("it counts its partitions")?;
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).with_context(|| line.to_owned())
}

/// O9: an instance stands still for longer than its session, with transactions open, calls in flight and its partitions
/// paused because they are full. When it goes on they are others': what it pauses, seeks and commits then is refused,
/// which breaks neither it nor the new owner.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_lost_paused_partitions_while_it_stood_still_works_on() -> Result<()> {
    const PARTITIONS: usize = 4;
    let all = PARTITIONS * (1 + TIERS.len());
    let world = World::new(4, ProviderSettings { latency_ms: 100, ..ProviderSettings::default() }).await?;
    let orders = sample_orders(2_000);
    let records = orders.iter().map(|order| (core_order::Event::key(order).to_owned(), order.to_json()));
    world.kafka.produce_all(&world.topic, records).await?;
    // A hundred records fill a partition.
    let settings = [("BATCH_MAX", "10"), ("CALLS_MAX", "8"), ("KAFKA_SESSION_TIMEOUT", "3s"), ("DRAIN_LIMIT", "2s")];
    let mut pair = [world.service_with(&settings).await?, world.service_with(&settings).await?];
    let owned = async |pair: &[Service; 2], at: usize| lanes(&pair[at]).await.unwrap_or(0);
    let share = async |pair: &[Service; 2]| {
        let (one, other) = (owned(pair, 0).await, owned(pair, 1).await);
        one > 0 && other > 0 && one + other == all
    };
    world.until("a share each", async || share(&pair).await).await?;
    for round in 0..4 {
        let (still, awake) = (round % 2, 1 - round % 2);
        pair[still].suspend()?;
        world.until("the other to own everything", async || owned(&pair, awake).await == all).await?;
        pair[still].resume()?;
        world.until("a share each", async || share(&pair).await).await?;
    }
    let charged = world.ledger.charge_count().await?;
    ensure!(charged < orders.len(), "all of it happened while there was work: {charged}");
    world.settled(orders.len()).await?;
    ensure!(pair.iter().all(|service| service.ended().is_none()), "the same processes");
    ensure!(world.moved_nothing().await?);
    for service in &pair {
        world.until("ready", async || service.ready().await).await?;
        ensure!(verdicts(service, "applied").await? > 0, "both worked");
    }
    world.charged_exactly(&orders).await
}
