//! What becomes of events that fail, and of offsets while a copy cannot be written.

use anyhow::{Context, Result, ensure};
use core_order::{Event, Order, OrderConfirmed};
use sandbox::provider::{FaultKind, ProviderSettings};
use testbed::clients::sample_orders;

use crate::world::{TIERS, World, header, verdicts};

fn always(kind: FaultKind) -> ProviderSettings {
    ProviderSettings {
        fault_share: 1.0,
        fault_kinds: vec![kind],
        max_faults_per_key: u32::MAX,
        ..ProviderSettings::default()
    }
}

fn once(kind: FaultKind) -> ProviderSettings {
    ProviderSettings { max_faults_per_key: 1, ..always(kind) }
}

/// H2: the retry carries the same key and the same bytes, whether or not the money moved at the first try.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_charge_is_retried_with_the_same_key_and_body() -> Result<()> {
    for kind in [FaultKind::ErrorBeforeCharge, FaultKind::ErrorAfterCharge, FaultKind::ResetAfterCharge] {
        let world = World::new(2, once(kind)).await?;
        let orders = sample_orders(10);
        world.send(&orders).await?;
        let service = world.service().await?;
        world.settled(10).await.with_context(|| format!("{kind}"))?;
        world.charged_exactly(&orders).await.with_context(|| format!("{kind}"))?;
        let record = world.provider.record();
        ensure!(record.keys.values().all(|key| key.calls == 2 && key.bodies.len() == 1), "{kind}: {:?}", record.keys);
        ensure!(verdicts(&service, "retried").await? == 10);
        ensure!(world.dead_letters().await?.is_empty());
        let copies = world.kafka.read_all(&world.retry_topic(TIERS[0])).await?;
        ensure!(copies.len() == 10);
        ensure!(copies.iter().all(|copy| header(copy, "delivery-attempts").as_deref() == Some("1")));
    }
    Ok(())
}

/// Trap 10 while the first event is in doubt: the money of the first may have moved, so a second event for the same order
/// must not be charged in the meantime, wherever the first one waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_in_doubt_is_not_charged_by_a_second_event() -> Result<()> {
    let world = World::new(1, once(FaultKind::ErrorAfterCharge)).await?;
    let first = sample_orders(1).remove(0);
    let order = Order { id: first.order_id().clone(), customer: first.customer_id().clone(), total: first.total() };
    let second = OrderConfirmed::from_order(&order, first.occurred_at())?;
    world.send([&first]).await?;
    let _service = world.service().await?;
    let retry = world.retry_topic(TIERS[0]);
    world.until("the retry", async || world.kafka.read_all(&retry).await.is_ok_and(|copies| copies.len() == 1)).await?;
    world.send([&second]).await?;
    world.settled(1).await?;
    world.charged_exactly(std::slice::from_ref(&first)).await?;
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1);
    ensure!(header(&letters[0], "delivery-error-class").as_deref() == Some("order_already_charged"));
    Ok(())
}

/// Nothing reached the provider in any try: the letter says so, and carries the event's whole history.
#[tokio::test(flavor = "multi_thread")]
async fn after_the_last_tier_an_event_is_a_dead_letter() -> Result<()> {
    let mut world = World::new(1, ProviderSettings::default()).await?;
    let url = world.provider.base_url();
    world.provider.stop().await;
    let order = sample_orders(1).remove(0);
    world.send([&order]).await?;
    let _service = world.service_with(&[("PAYMENT_URL", &url)]).await?;
    world.until("the dead letter", async || world.dead_letters().await.is_ok_and(|letters| letters.len() == 1)).await?;
    world.settled(0).await?;
    let letter = world.dead_letters().await?.remove(0);
    let expected = [
        ("delivery-error-class", "retries_exhausted"),
        ("delivery-attempts", "3"),
        ("delivery-origin-topic", &world.topic),
        ("delivery-origin-partition", "0"),
        ("delivery-origin-offset", "0"),
        ("delivery-group", &world.group),
        ("delivery-format", "1"),
    ];
    for (key, value) in expected {
        ensure!(header(&letter, key).as_deref() == Some(value), "{key}: {:?}", header(&letter, key));
    }
    ensure!(header(&letter, "delivery-first-failure").is_some());
    ensure!(header(&letter, "delivery-due").is_none());
    ensure!(letter.payload.as_deref() == Some(order.to_json().as_slice()), "the bytes are untouched");
    ensure!(letter.key.as_deref() == Some(order.key().as_bytes()));
    ensure!(world.ledger.claim_count(&world.group).await? == 0, "it can be replayed");
    Ok(())
}

/// The provider answered 500 each time: nobody knows whether the money moved, and the letter does not pretend.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_ends_as_in_doubt() -> Result<()> {
    let world = World::new(1, always(FaultKind::ErrorAfterCharge)).await?;
    world.send(&sample_orders(1)).await?;
    let _service = world.service().await?;
    world.until("the dead letter", async || world.dead_letters().await.is_ok_and(|letters| letters.len() == 1)).await?;
    let letter = world.dead_letters().await?.remove(0);
    ensure!(header(&letter, "delivery-error-class").as_deref() == Some("in_doubt"));
    ensure!(header(&letter, "delivery-error-text").is_some_and(|text| text.contains("500")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_charge_is_a_dead_letter_at_once_and_harms_no_other() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(5);
    let declined =
        Order { id: "order-declined".parse()?, customer: "declined-customer".parse()?, total: orders[0].total() };
    let declined = OrderConfirmed::from_order(&declined, orders[0].occurred_at())?;
    world.send(orders[..2].iter().chain([&declined]).chain(&orders[2..])).await?;
    let service = world.service().await?;
    world.settled(5).await?;
    world.charged_exactly(&orders).await?;
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1);
    ensure!(header(&letters[0], "delivery-error-class").as_deref() == Some("declined"));
    ensure!(header(&letters[0], "delivery-attempts").as_deref() == Some("1"));
    ensure!(verdicts(&service, "retried").await? == 0);
    Ok(())
}

/// P2, P3: poison at the head and in the middle; the bytes are kept and the flow goes on.
#[tokio::test(flavor = "multi_thread")]
async fn undecodable_records_are_dead_letters_with_their_bytes_and_the_flow_goes_on() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(10);
    let bom = [b"\xef\xbb\xbf".as_slice(), &orders[0].to_json()].concat();
    let foreign = orders[0].to_json();
    let poison: [(&str, &[u8]); 5] =
        [("k", b"{not json"), ("k", b""), ("k", b"\xff\xfe"), ("k", &bom), ("other", &foreign)];
    world.kafka.produce(&world.topic, poison[0].0, poison[0].1).await?;
    world.send(&orders[..5]).await?;
    for (key, payload) in &poison[1..] {
        world.kafka.produce(&world.topic, key, payload).await?;
    }
    // A tombstone and another event type are no poison: ignored and counted.
    world.kafka.produce_to(&world.topic, 0, Some(b"k"), None, &[]).await?;
    world.kafka.produce(&world.topic, "k", br#"{"event_type":"OrderShipped"}"#).await?;
    world.send(&orders[5..]).await?;
    let service = world.service().await?;
    world.settled(10).await?;
    world.charged_exactly(&orders).await?;

    let letters = world.dead_letters().await?;
    let payloads: Vec<&[u8]> = letters.iter().filter_map(|letter| letter.payload.as_deref()).collect();
    let expected: Vec<&[u8]> = poison.iter().map(|(_, payload)| *payload).collect();
    ensure!(payloads == expected, "{letters:?}");
    let classes: Vec<_> = letters.iter().filter_map(|letter| header(letter, "delivery-error-class")).collect();
    ensure!(classes == ["undecodable", "undecodable", "undecodable", "undecodable", "key_mismatch"], "{classes:?}");
    ensure!(verdicts(&service, "ignored_tombstone").await? == 1);
    ensure!(verdicts(&service, "ignored_other_type").await? == 1);
    Ok(())
}

/// R2, O4: while the dead letter cannot be written the offset stays in front of it, later events are charged all
/// the same, the service says what is wrong, and it recovers when the topic is there.
#[tokio::test(flavor = "multi_thread")]
async fn the_offset_does_not_move_while_the_dead_letter_cannot_be_written() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(6);
    world.send(&orders[..3]).await?;
    let service = world.service().await?;
    world.settled(3).await?;
    world.kafka.delete_topic(&world.dead_letter_topic()).await?;
    world.kafka.produce(&world.topic, "k", b"poison").await?;
    world.send(&orders[3..]).await?;
    world.until("6 charges", async || world.ledger.charge_count().await.is_ok_and(|count| count == 6)).await?;
    world.until("not ready", async || !service.ready().await).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(3)], "the poison is at offset 3");

    world.kafka.create_topic(&world.dead_letter_topic(), 1, &[]).await?;
    world.settled(6).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(7)]);
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == 1 && letters[0].payload.as_deref() == Some(b"poison".as_slice()));
    world.until("ready", async || service.ready().await).await?;
    world.charged_exactly(&orders).await
}
