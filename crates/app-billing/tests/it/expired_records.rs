//! Records that the broker has removed before they were consumed: the service goes on at the first one that is left,
//! and says so.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use core_order::Event;
use sandbox::provider::{Provider, ProviderSettings};
use testbed::clients::{Service, sample_orders};
use testbed::wait_until;

use crate::operators;
use crate::world::{SOON, World};

/// How long a start may take that is to be refused.
const REFUSAL: Duration = Duration::from_secs(30);

/// The count of lanes that started elsewhere than the group had left them.
async fn start_alarms(service: &Service, kind: &str) -> Result<u64> {
    let metrics = service.metrics().await?;
    let wanted = format!("kind=\"{kind}\"");
    let line = metrics.lines().find(|line| line.starts_with("delivery_start_alarms_total{") && line.contains(&wanted));
    Ok(line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok()).unwrap_or(0))
}

/// O7: the committed offset lies below the first record that is left. `latest` would skip what is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_below_the_first_record_starts_there_with_an_alarm() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let early = sample_orders(20);
    world.send(&early).await?;
    let mut service = world.service().await?;
    world.settled(20).await?;
    service.terminate()?;
    service.wait(SOON).await?;
    let left_at = world.kafka.committed(&world.group, &world.topic, 2).await?;
    let left_at = left_at[0].context("committed")?;

    let late = sample_orders(12);
    for order in &late {
        world.kafka.produce_to(&world.topic, 0, Some(order.key().as_bytes()), Some(&order.to_json()), &[]).await?;
    }
    world.kafka.delete_records(&world.topic, 0, left_at + 5).await?;
    let service = world.service().await?;
    world.settled(27).await?;
    ensure!(start_alarms(&service, "expired").await? == 1);
    let log = service.log();
    let line = log.lines().find(|line| line.contains("records expired before they were consumed"));
    let line = line.with_context(|| service.log_tail())?;
    ensure!(line.contains("ERROR") && line.contains(&format!("{}/0", world.topic)), "{line}");
    ensure!(line.contains(&format!("\"wanted\":{left_at}")) && line.contains(&format!("\"position\":{}", left_at + 5)));
    ensure!(world.kafka.committed(&world.group, &world.topic, 2).await?[0] == Some(left_at + 12));
    ensure!(service.ready().await);
    world.charged_exactly(&[&early[..], &late[5..]].concat()).await
}

/// O7, with nothing left at all: the lane starts at the end, hangs nowhere and takes what comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_below_an_empty_log_starts_at_its_end_with_an_alarm() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(6);
    world.send(&orders[..2]).await?;
    let mut service = world.service().await?;
    world.settled(2).await?;
    service.terminate()?;
    service.wait(SOON).await?;
    world.send(&orders[2..4]).await?;
    world.kafka.delete_records(&world.topic, 0, 4).await?;

    let service = world.service().await?;
    wait_until("the alarm", SOON, async || start_alarms(&service, "expired").await.is_ok_and(|count| count == 1))
        .await?;
    world.send(&orders[4..]).await?;
    world.settled(4).await?;
    world.charged_exactly(&[&orders[..2], &orders[4..]].concat()).await
}

/// The same under a service that runs: the partition is full and paused, because the provider refuses our credentials,
/// and what it would read next expires. It goes on at the first record that is left, and the client warns.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_expire_before_a_paused_partition_reads_on_are_passed_with_a_warning() -> Result<()> {
    const ALL: usize = 4_000;
    const LEFT: usize = 100;
    let refusing = ProviderSettings { api_key: Some("the right key".to_owned()), ..ProviderSettings::default() };
    let mut world = World::new(1, refusing).await?;
    let orders = sample_orders(ALL);
    let records = orders.iter().map(|order| (order.key().to_owned(), order.to_json()));
    world.kafka.produce_all(&world.topic, records).await?;
    // Twenty records fill the partition, and one burst more is read at most.
    let service = world.service_with(&[("PAYMENT_API_KEY", "a wrong key"), ("BATCH_MAX", "2")]).await?;
    world.until("the refusal", async || service.readiness().await.is_ok_and(|(_, why)| why.contains("401"))).await?;
    world.kafka.delete_records(&world.topic, 0, i64::try_from(ALL - LEFT)?).await?;

    let address: SocketAddr = world.provider.base_url().trim_start_matches("http://").parse()?;
    world.provider.stop().await;
    world.provider = Provider::start(address, ProviderSettings::default()).await?;
    world.until("no lag", async || world.lag().await == Some(0)).await?;
    let charged = world.ledger.charge_count().await?;
    ensure!((LEFT + 1..ALL).contains(&charged), "what it had read, and what was left: {charged}");
    let read = &orders[..charged - LEFT];
    world.charged_exactly(&[read, &orders[ALL - LEFT..]].concat()).await?;
    let log = service.log();
    let warning = log.lines().find(|line| line.contains("offset reset"));
    ensure!(warning.is_some_and(|line| line.contains("WARN") && line.contains(&world.topic)), "{warning:?}");
    ensure!(world.moved_nothing().await?);
    world.until("ready", async || service.ready().await).await
}

/// O7: what would let a partition start at its end is no setting.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_to_the_latest_record_is_refused_at_start() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    for property in ["auto.offset.reset", "topic.auto.offset.reset"] {
        let value = format!("{property}=latest");
        let settings = [("KAFKA_PROPERTIES", value.as_str())];
        let refused = operators::run_with(&world, &["run"], &settings);
        let refused = tokio::time::timeout(REFUSAL, refused).await??.ended_with(2)?;
        ensure!(refused.says(property) && refused.says("cannot be set"), "it names the property");
    }
    Ok(())
}
