//! What a topic can hold besides good events: each kind has one outcome, and none stops the flow.

use anyhow::{Result, ensure};
use core_order::{Event, EventId};
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;

use crate::world::{World, header, verdicts};

fn payload(id: &str, order: &str, customer: &str, more: &str) -> String {
    format!(
        r#"{{"event_id":"{id}","event_type":"OrderConfirmed","occurred_at":"2026-12-01T10:00:00Z","order_id":"{order}","customer_id":"{customer}","total_amount":1250{more}}}"#
    )
}

/// P5: other spellings of an id are the same id, and have one effect.
#[tokio::test(flavor = "multi_thread")]
async fn every_spelling_of_an_id_is_one_event() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let id = EventId::generate().to_string();
    let spellings = [id.clone(), id.to_uppercase(), format!("{{{id}}}"), format!("urn:uuid:{id}")];
    for spelling in &spellings {
        world.kafka.produce(&world.topic, "o-1", payload(spelling, "o-1", "c-1", "").as_bytes()).await?;
    }
    let service = world.service().await?;
    world.settled(1).await?;
    ensure!(verdicts(&service, "applied").await? == 1 && verdicts(&service, "duplicate").await? == 3);
    let record = world.provider.record();
    ensure!(record.summary.calls == 1);
    ensure!(record.charges[0].idempotency_key.as_ref() == id, "the key is the one spelling");
    Ok(())
}

/// P6, P7: ids of other versions, NUL in a string, a record near the size limit, depth, unknown fields.
#[tokio::test(flavor = "multi_thread")]
async fn strange_payloads_have_an_outcome_each_and_the_flow_goes_on() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(2);
    let id = || EventId::generate().to_string();
    let deep = format!(r#","x":{}{}"#, "[".repeat(5_000), "]".repeat(5_000));
    let long = format!(r#","note":"{}""#, "x".repeat(1_000_000));
    let refused = [
        payload("00000000-0000-0000-0000-000000000000", "o", "c", ""),
        payload("ffffffff-ffff-ffff-ffff-ffffffffffff", "o", "c", ""),
        payload("c232ab00-9414-11ec-b3c8-9f6bdeced846", "o", "c", ""),
        payload("919108f7-52d1-4320-9bac-f847db4148a8", "o", "c", ""),
        payload(&id(), "o", "c\\u0000", ""),
        payload(&id(), "o", "c", r#","total_amount":1"#),
        format!(r#"{{"event_type":"OrderConfirmed"{long}}}"#),
    ];
    let accepted = [payload(&id(), "o-deep", "c", &deep), payload(&id(), "o-long", "c", &long)];
    world.send(&orders[..1]).await?;
    for payload in &refused {
        world.kafka.produce(&world.topic, "o", payload.as_bytes()).await?;
    }
    world.kafka.produce(&world.topic, "o-deep", accepted[0].as_bytes()).await?;
    world.kafka.produce(&world.topic, "o-long", accepted[1].as_bytes()).await?;
    world.send(&orders[1..]).await?;

    let service = world.service().await?;
    world.settled(4).await?;
    let letters = world.dead_letters().await?;
    ensure!(letters.len() == refused.len(), "{}", letters.len());
    for (letter, payload) in letters.iter().zip(&refused) {
        ensure!(letter.payload.as_deref() == Some(payload.as_bytes()), "the bytes are untouched");
        ensure!(header(letter, "delivery-error-class").as_deref() == Some("undecodable"));
    }
    ensure!(
        header(&letters[3], "delivery-error-text").is_some_and(|text| text.contains("version 4, expected version 7"))
    );
    ensure!(header(&letters[4], "delivery-error-text").is_some_and(|text| text.contains("customer_id")));
    ensure!(verdicts(&service, "retried").await? == 0);
    ensure!(world.provider.record().summary.charges == 4);
    ensure!(world.provider.record().succeeded_of_order(orders[1].key()).count() == 1);
    Ok(())
}

/// O8: a tier that waits longer than `max.poll.interval.ms` costs nobody the membership.
#[tokio::test(flavor = "multi_thread")]
async fn a_tier_longer_than_the_poll_interval_keeps_the_member_in_its_group() -> Result<()> {
    let provider = ProviderSettings {
        fault_share: 1.0,
        fault_kinds: vec![sandbox::provider::FaultKind::ErrorBeforeCharge],
        max_faults_per_key: 1,
        ..ProviderSettings::default()
    };
    let world = World::new(1, provider).await?;
    let orders = sample_orders(3);
    world.send(&orders).await?;
    let settings = [("KAFKA_PROPERTIES", "max.poll.interval.ms=6000"), ("RETRY_TIERS", "12s")];
    let service = world.service_with(&settings).await?;
    world.until("the retries", async || world.ledger.charge_count().await.is_ok_and(|count| count == 3)).await?;
    ensure!(service.ended().is_none());
    let log = service.log();
    ensure!(!log.contains("max.poll.interval.ms exceeded") && !log.contains("lane given away"), "{log}");
    world.charged_exactly(&orders).await
}
