//! Infrastructure that is away, refuses us, or went back to an earlier state: no event moves, and nothing is lost.

use std::process::Command;
use std::time::Duration;

use adapters_kafka::{KafkaSettings, group_members};
use anyhow::{Context, Result, ensure};
use core_order::{Event, OrderConfirmed};
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;
use testbed::{Backend, PostgresOptions, PrivatePostgres, wait_until};
use tokio::time::{Instant, sleep};

use crate::operators;
use crate::world::{SOON, TIERS, World};

/// How long the database is away; longer for a run by hand.
fn outage(default: Duration) -> Duration {
    let seconds = std::env::var("TEST_OUTAGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(default, Duration::from_secs)
}

/// The orders that wait when the service starts at full intake, and what the database is stopped at.
const BACKLOG: usize = 20_000;
const STOPPED_AT: usize = 2_000;
/// How long it may take afterwards to charge as many as that, on a slow machine.
const CATCHING_UP: Duration = Duration::from_secs(240);

/// Trap 7: the database is away while events trickle in. Intake pauses, the member stays in its group, no attempt is used and no
/// event moves; afterwards everything is caught up.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_outage_moves_no_event_and_is_caught_up() -> Result<()> {
    let mut server = PrivatePostgres::start(PostgresOptions::default()).await?;
    let world = World::on_server(&server.url("postgres"), 2, ProviderSettings::default()).await?;
    let service = world.service().await?;
    let mut orders = sample_orders(100);
    world.send(&orders).await?;
    world.settled(100).await?;

    server.stop_immediately().await?;
    let end = Instant::now() + outage(Duration::from_secs(10));
    while Instant::now() < end {
        let more = sample_orders(50);
        world.send(&more).await?;
        orders.extend(more);
        sleep(Duration::from_millis(500)).await;
    }
    let (status, reasons) = service.readiness().await?;
    ensure!(status == 503 && reasons.contains("unavailable"), "{status} {reasons}");
    let settings = KafkaSettings::new(Backend::from_env()?.kafka_brokers);
    ensure!(group_members(&settings, &world.group).await? == 1, "it is still a member");

    server.restart().await?;
    world.settled(orders.len()).await?;
    ensure!(world.moved_nothing().await?);
    ensure!(service.ended().is_none(), "the same process");
    world.until("ready", async || service.ready().await).await?;
    world.charged_exactly(&orders).await
}

/// Trap 7 at full intake: the database crashes in the middle of a backlog, with transactions open, calls in flight and
/// lanes full. Producing goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_outage_at_full_intake_moves_no_event_and_is_caught_up() -> Result<()> {
    let mut server = PrivatePostgres::start(PostgresOptions::default()).await?;
    let world = World::on_server(&server.url("postgres"), 4, ProviderSettings::default()).await?;
    let mut orders = sample_orders(BACKLOG);
    load(&world, &orders).await?;
    let service = world.service().await?;
    let charged = async |least| world.ledger.charge_count().await.is_ok_and(|count| count >= least);
    world.until("full intake", async || charged(STOPPED_AT).await).await?;

    server.stop_immediately().await?;
    let end = Instant::now() + outage(Duration::from_secs(20));
    while Instant::now() < end {
        let more = sample_orders(200);
        load(&world, &more).await?;
        orders.extend(more);
        sleep(Duration::from_millis(500)).await;
    }
    let (status, reasons) = service.readiness().await?;
    ensure!(status == 503 && reasons.contains("unavailable"), "{status} {reasons}");
    let settings = KafkaSettings::new(Backend::from_env()?.kafka_brokers);
    ensure!(group_members(&settings, &world.group).await? == 1, "it is still a member");
    let before = world.provider.record().summary.charges as usize;
    ensure!(before < BACKLOG, "stopped in the middle: {before} of {BACKLOG} were charged");

    server.restart().await?;
    let limit = CATCHING_UP.mul_f64(orders.len() as f64 / BACKLOG as f64);
    wait_until("all to be charged", limit, async || charged(orders.len()).await).await?;
    world.settled(orders.len()).await?;
    ensure!(world.moved_nothing().await?);
    ensure!(service.ended().is_none(), "the same process");
    let log = service.log();
    ensure!(log.matches("\"lane assigned\"").count() == 4 * (1 + TIERS.len()), "each partition was assigned once");
    ensure!(!log.contains("lane given away") && !log.contains("lanes lost"), "no partition moved");
    world.until("ready", async || service.ready().await).await?;
    world.charged_exactly(&orders).await
}

/// Produces as fast as the broker takes it.
async fn load(world: &World, orders: &[OrderConfirmed]) -> Result<()> {
    let records = orders.iter().map(|order| (order.key().to_owned(), order.to_json()));
    world.kafka.produce_all(&world.topic, records).await.map(drop)
}

/// Trap 9, while the consumer runs: the database is put back to an earlier state under its feet.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_restored_under_the_running_consumer_is_caught_up() -> Result<()> {
    restored(true).await
}

/// Trap 9, with the consumer started again afterwards: Kafka's offsets are ahead of the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_restored_while_the_consumer_was_away_is_caught_up() -> Result<()> {
    restored(false).await
}

async fn restored(consumer_runs: bool) -> Result<()> {
    let mut server = PrivatePostgres::start(PostgresOptions::default()).await?;
    let world = World::on_server(&server.url("postgres"), 2, ProviderSettings::default()).await?;
    let (early, lost) = (sample_orders(60), sample_orders(60));
    let mut service = world.service().await?;
    world.send(&early).await?;
    world.settled(60).await?;

    server.stop().await?;
    let (data, backup) = (server.folder().join("data"), server.folder().join("backup"));
    run(Command::new("cp").arg("-a").arg(&data).arg(&backup))?;
    server.restart().await?;
    world.send(&lost).await?;
    world.settled(120).await?;

    if !consumer_runs {
        service.terminate()?;
        service.wait(SOON).await?;
    }
    server.stop().await?;
    run(Command::new("rm").arg("-rf").arg(&data))?;
    run(Command::new("mv").arg(&backup).arg(&data))?;
    server.restart().await?;
    if !consumer_runs {
        service = world.service().await?;
    }
    // No new event is needed for it to be noticed.
    world.settled(120).await?;
    let orders: Vec<OrderConfirmed> = [early, lost].concat();
    world.charged_exactly(&orders).await?;
    let record = world.provider.record();
    ensure!(record.summary.charges == 120, "the provider charged nobody twice: {:?}", record.summary);
    ensure!(world.moved_nothing().await?);
    ensure!(service.ended().is_none());
    let audit = operators::run(&world, &["audit", "--json", "--provider"]).await?.ended_with(0)?.json()?;
    ensure!(audit["applied"] == 120 && audit["lost"] == 0 && audit["charged_twice"] == 0, "{audit}");
    ensure!(audit["unexpected"] == 0 && audit["pending"] == 0, "{audit}");
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Trap 2: a wrong key must not drain a topic into the dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_halt_intake_and_move_nothing() -> Result<()> {
    let provider = ProviderSettings { api_key: Some("the right key".to_owned()), ..ProviderSettings::default() };
    let world = World::new(2, provider).await?;
    let orders = sample_orders(40);
    world.send(&orders).await?;
    let mut service = world.service_with(&[("PAYMENT_API_KEY", "a wrong key")]).await?;
    world.until("not ready", async || !service.ready().await).await?;
    let (_, reasons) = service.readiness().await?;
    ensure!(reasons.contains("401"), "{reasons}");
    ensure!(world.moved_nothing().await?);
    ensure!(world.ledger.charge_count().await? == 0);
    service.terminate()?;
    service.wait(SOON).await?;

    let _service = world.service_with(&[("PAYMENT_API_KEY", "the right key")]).await?;
    world.settled(40).await?;
    ensure!(world.moved_nothing().await?);
    world.charged_exactly(&orders).await
}

/// Trap 2: nor must a provider that refuses everything, whatever it calls it.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_declines_everything_does_not_drain_the_topic() -> Result<()> {
    let world = World::new(1, ProviderSettings { decline_share: 1.0, ..ProviderSettings::default() }).await?;
    world.send(&sample_orders(600)).await?;
    let service = world.service().await?;
    world.until("not ready", async || !service.ready().await).await?;
    let (_, reasons) = service.readiness().await?;
    ensure!(reasons.contains("too many calls fail"), "{reasons}");
    let letters = world.dead_letters().await?.len();
    ensure!(letters < 200, "{letters} dead letters before the storm was noticed");
    Ok(())
}
