//! Events that come late: older than the claims that are kept, or than the provider's memory of keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use core_delivery::event::UnixMillis;
use core_order::EventId;
use sandbox::provider::ProviderSettings;
use sqlx::Connection;

use crate::world::{World, header};

fn ago(age: Duration) -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    UnixMillis(i64::try_from((now - age).as_millis()).expect("in this era"))
}

/// The event of an order, as its producer sent it that long ago.
async fn send(world: &World, id: EventId, order: &str) -> Result<()> {
    let payload = format!(
        r#"{{"event_id":"{id}","event_type":"OrderConfirmed","occurred_at":"2026-12-01T10:00:00Z","order_id":"{order}","customer_id":"c-1","total_amount":1250}}"#
    );
    world.kafka.produce(&world.topic, order, payload.as_bytes()).await?;
    Ok(())
}

/// Trap 4, D6: below the floor nothing is claimed. What the ledger knows is a duplicate, anything else a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_below_the_floor_is_never_processed_again() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let mut service = world.service().await?;
    let (known, unknown) = (EventId::generate(), EventId::at(ago(Duration::from_secs(3_600)), [1; 10]));
    send(&world, known, "order-known").await?;
    world.settled(1).await?;
    service.terminate()?;
    service.wait(crate::world::SOON).await?;

    // As if both had grown old: the floor lies above them, and the claim of the known one was removed.
    let mut database = sqlx::PgConnection::connect(&world.database_url).await?;
    let floor = EventId::generate().as_uuid();
    sqlx::query("insert into claim_floor (consumer_group, floor) values ($1, $2)")
        .bind(&world.group)
        .bind(floor)
        .execute(&mut database)
        .await?;
    sqlx::query("delete from processed_event").execute(&mut database).await?;

    send(&world, known, "order-known").await?;
    send(&world, unknown, "order-unknown").await?;
    let young = EventId::generate();
    send(&world, young, "order-young").await?;
    let service = world.service().await?;
    world.settled(2).await?;
    ensure!(crate::world::verdicts(&service, "duplicate").await? == 1, "the ledger knows it");
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1);
    ensure!(header(&letters[0], "delivery-error-class").as_deref() == Some("expired"));
    ensure!(letters[0].key.as_deref() == Some(b"order-unknown".as_slice()));
    ensure!(world.provider.record().summary.calls == 2);
    Ok(())
}

/// Trap 8: the provider may have forgotten the key of an event this old, so a charge before a crash would be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_older_than_the_providers_memory_is_not_charged_blindly() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let old = EventId::at(ago(Duration::from_secs(24 * 3_600)), [2; 10]);
    send(&world, old, "order-old").await?;
    let mut service = world.service().await?;
    world.until("the dead letter", async || world.dead_letters().await.is_ok_and(|letters| letters.len() == 1)).await?;
    ensure!(header(&world.dead_letters().await?[0], "delivery-error-class").as_deref() == Some("in_doubt"));
    ensure!(world.provider.record().summary.calls == 0);
    service.terminate()?;
    service.wait(crate::world::SOON).await?;

    // With a look-up the provider says that it never heard of it, and it is charged.
    world.kafka.reset_to_earliest(&world.group, &world.topic).await?;
    let _service = world.service_with(&[("PAYMENT_LOOKUP", "on")]).await?;
    world.settled(1).await?;
    ensure!(world.provider.record().summary.charges == 1);
    Ok(())
}

/// An id from the future, beyond the allowed skew, is refused; the clocks agree here.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_from_the_future_is_a_dead_letter() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let now = ago(Duration::ZERO);
    send(&world, EventId::at(now.plus(Duration::from_secs(200)), [3; 10]), "order-soon").await?;
    send(&world, EventId::at(now.plus(Duration::from_secs(900)), [4; 10]), "order-far").await?;
    let _service = world.service().await?;
    world.settled(1).await?;
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1);
    ensure!(header(&letters[0], "delivery-error-class").as_deref() == Some("from_the_future"));
    Ok(())
}
