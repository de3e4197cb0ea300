//! Records that the broker has removed before they were consumed: the service goes on at the first one that is left,
//! and says so.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::provider::ProviderSettings;
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
        world
            .kafka
            .produce_to(&world.topic, 0, Some(core_order::Event::key(order).as_bytes()), Some(&order.to_json()), &[])
            .await?;
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

/// O7: what would let a partition start at its end is no setting.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_to_the_latest_record_is_refused_at_start() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let refused = operators::run_with(&world, &["run"], &[("KAFKA_PROPERTIES", "auto.offset.reset=latest")]);
    let refused = tokio::time::timeout(REFUSAL, refused).await??.ended_with(2)?;
    ensure!(refused.says("auto.offset.reset") && refused.says("cannot be set"), "it names the property");
    Ok(())
}
