//! First deliveries and every way in which an event comes again.

use anyhow::{Result, ensure};
use core_order::Event;
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;

use crate::world::{SOON, World, verdicts};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_delivery_is_charged_once_and_committed() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(50);
    world.send(&orders).await?;
    let service = world.service().await?;
    world.settled(50).await?;
    world.charged_exactly(&orders).await?;
    ensure!(world.dead_letters().await?.is_empty());
    ensure!(verdicts(&service, "applied").await? == 50);
    ensure!(service.ready().await);
    Ok(())
}

/// The crash between the database's commit and the offset's: the offsets are never committed by the first process. The
/// position in the database tells the second one where to go on, and Kafka hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_offset_commit_charges_nobody_again() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(50);
    world.send(&orders).await?;
    let mut service = world.service_with(&[("KAFKA_COMMIT_INTERVAL", "60s")]).await?;
    world.until("50 charges", async || world.ledger.charge_count().await.is_ok_and(|count| count == 50)).await?;
    service.kill9().await?;
    let committed = world.kafka.committed(&world.group, &world.topic, 2).await?;
    ensure!(committed == [None, None], "the crash came before the commit: {committed:?}");

    let _service = world.service().await?;
    world.settled(50).await?;
    ensure!(world.provider.record().summary.calls == 50);
    world.charged_exactly(&orders).await
}

/// The same crash where the position was lost as well: every event comes again, and the claims answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_of_everything_charges_nobody_again() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(50);
    world.send(&orders).await?;
    let mut service = world.service_with(&[("KAFKA_COMMIT_INTERVAL", "60s")]).await?;
    world.until("50 charges", async || world.ledger.charge_count().await.is_ok_and(|count| count == 50)).await?;
    service.kill9().await?;
    world.forget_positions().await?;

    let service = world.service().await?;
    world.settled(50).await?;
    ensure!(verdicts(&service, "duplicate").await? == 50);
    ensure!(verdicts(&service, "applied").await? == 0);
    ensure!(world.provider.record().summary.calls == 50, "the claim answers, not the provider");
    world.charged_exactly(&orders).await
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_reset_to_earliest_charge_nobody_again() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(30);
    world.send(&orders).await?;
    let mut service = world.service().await?;
    world.settled(30).await?;
    service.terminate()?;
    service.wait(SOON).await?;
    world.kafka.reset_to_earliest(&world.group, &world.topic).await?;
    ensure!(world.lag().await == Some(30), "everything is to be read again");

    let more = sample_orders(5);
    world.send(&more).await?;
    let service = world.service().await?;
    world.settled(35).await?;
    ensure!(verdicts(&service, "duplicate").await? == 30);
    ensure!(verdicts(&service, "applied").await? == 5);
    world.charged_exactly(&[orders, more].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_twice_in_a_batch_is_charged_once() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(10);
    // Before the service starts, so that they are read together.
    world.send(orders.iter().chain(&orders).chain(&orders)).await?;
    let service = world.service().await?;
    world.settled(10).await?;
    ensure!(verdicts(&service, "applied").await? == 10);
    ensure!(verdicts(&service, "duplicate").await? == 20);
    ensure!(world.provider.record().summary.calls == 10);
    world.charged_exactly(&orders).await
}

/// Trap 10: two event ids for one order are a producer's mistake, and the customer does not pay for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_event_for_an_order_is_refused_uncharged() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let first = sample_orders(1).remove(0);
    let order =
        core_order::Order { id: first.order_id().clone(), customer: first.customer_id().clone(), total: first.total() };
    let second = core_order::OrderConfirmed::from_order(&order, first.occurred_at())?;
    world.send([&first, &second]).await?;
    let _service = world.service().await?;
    world.settled(1).await?;
    world.charged_exactly(std::slice::from_ref(&first)).await?;
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1);
    ensure!(crate::world::header(&letters[0], "delivery-error-class").as_deref() == Some("order_already_charged"));
    ensure!(letters[0].payload.as_deref() == Some(second.to_json().as_slice()));
    ensure!(letters[0].key.as_deref() == Some(second.key().as_bytes()));
    Ok(())
}

/// A zero amount is applied, and the provider never hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_zero_amount_is_applied_without_a_call() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let sample = sample_orders(1).remove(0);
    let order = core_order::Order {
        id: sample.order_id().clone(),
        customer: sample.customer_id().clone(),
        total: core_order::Money { minor_units: 0, ..sample.total() },
    };
    let free = core_order::OrderConfirmed::from_order(&order, sample.occurred_at())?;
    world.send([&free]).await?;
    let _service = world.service().await?;
    world.settled(1).await?;
    ensure!(world.provider.record().summary.calls == 0);
    world.charged_exactly(&[free]).await
}
