//! The audit and the check: clean when all is well, and naming what is not.

use anyhow::{Result, ensure};
use core_order::Event;
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;

use super::{run, run_with, sql, stopped};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_is_clean_after_a_run_and_finds_what_was_taken_away() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(20);
    world.send(orders.iter().chain(&orders[..4])).await?;
    world.kafka.produce(&world.topic, "k", b"poison").await?;
    world.kafka.produce(&world.topic, "k", br#"{"event_type":"OrderShipped"}"#).await?;
    let service = world.service().await?;
    world.settled(20).await?;
    let audit = run(&world, &["audit", "--json", "--provider"]).await?.ended_with(0)?.json()?;
    let expected = [
        ("produced", 26),
        ("distinct_produced", 22),
        ("applied", 20),
        ("duplicates", 4),
        ("dead_lettered", 1),
        ("ignored", 1),
        ("pending", 0),
        ("lost", 0),
        ("charged_twice", 0),
        ("unexpected", 0),
    ];
    for (name, count) in expected {
        ensure!(audit[name] == count, "{name}: {audit}");
    }
    stopped(service).await?;

    let more = sample_orders(2);
    world.send(&more).await?;
    let audit = run(&world, &["audit", "--json"]).await?.ended_with(0)?.json()?;
    ensure!(audit["pending"] == 2 && audit["lag"] == 2, "{audit}");

    let a_row = "delete from charge where event_id = (select min(event_id::text)::uuid from charge)";
    ensure!(sql(&world, a_row).await? == 1);
    let audit = run(&world, &["audit", "--json", "--provider"]).await?.ended_with(1)?.json()?;
    ensure!(audit["lost"] == 1 && audit["applied"] == 19, "{audit}");
    ensure!(audit["unexpected"] == 1 && audit["findings"][1]["kind"] == "not_in_ledger", "{audit}");
    let a_claim = "delete from processed_event where event_id = (select max(event_id::text)::uuid from charge)";
    ensure!(sql(&world, a_claim).await? == 1);
    let shown = run(&world, &["audit"]).await?.ended_with(1)?;
    ensure!(shown.out.contains("claim_missing: event"), "{}", shown.out);
    ensure!(shown.err.contains("1 lost, 0 charged twice, 1 unexpected"), "{}", shown.err);
    Ok(())
}

/// What is in flight is pending, and never taken for lost or unexpected.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_beside_the_running_service_finds_nothing() -> Result<()> {
    let faults =
        ProviderSettings { fault_share: 0.2, latency_ms: 20, max_faults_per_key: 1, ..ProviderSettings::default() };
    let world = World::new(4, faults).await?;
    let orders = sample_orders(3_000);
    let _service = world.service_with(&[("BATCH_MAX", "20"), ("CALLS_MAX", "16")]).await?;
    let (mut audits, mut seen_pending) = (0, 0);
    for part in orders.chunks(500) {
        world.kafka.produce_all(&world.topic, part.iter().map(|o| (o.key().to_owned(), o.to_json()))).await?;
        let audit = run(&world, &["audit", "--json", "--provider"]).await?.ended_with(0)?.json()?;
        audits += 1;
        seen_pending += usize::from(audit["pending"].as_u64() > Some(0) && audit["applied"].as_u64() > Some(0));
    }
    ensure!(seen_pending > 0, "none of {audits} audits met work in flight");
    world.settled(3_000).await?;
    let audit = run(&world, &["audit", "--json", "--provider"]).await?.ended_with(0)?.json()?;
    ensure!(audit["applied"] == 3_000 && audit["pending"] == 0, "{audit}");
    ensure!(audit["retried"].as_u64() > Some(0), "{audit}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_clean_after_a_run_and_names_what_is_missing() -> Result<()> {
    let mut world = World::new(1, ProviderSettings::default()).await?;
    let empty = run(&world, &["check"]).await?.ended_with(1)?;
    ensure!(
        empty.out.contains("app-billing migrate") && empty.out.contains(&world.dead_letter_topic()),
        "{}",
        empty.out
    );
    stopped(world.service().await?).await?;
    for look_up in ["on", "off"] {
        let clean = run_with(&world, &["check", "--json"], &[("PAYMENT_LOOKUP", look_up)]).await?;
        let clean = clean.ended_with(0)?.json()?;
        ensure!(clean["clean"] == true, "{clean}");
    }

    world.kafka.delete_topic(&world.dead_letter_topic()).await?;
    let gone = async || world.kafka.end_offsets(&world.dead_letter_topic()).await.is_err();
    world.until("the topic to be gone", gone).await?;
    let missing = run(&world, &["check"]).await?.ended_with(1)?;
    ensure!(missing.out.contains(&world.dead_letter_topic()) && missing.out.contains("--create"), "{}", missing.out);

    let url = world.provider.base_url();
    world.provider.stop().await;
    let silent = run_with(&world, &["check"], &[("PAYMENT_URL", &url)]).await?.ended_with(3)?;
    ensure!(silent.out.contains("correct PAYMENT_URL"), "{}", silent.out);
    let away = [("DATABASE_URL", "postgres://postgres@127.0.0.1:1/none"), ("PAYMENT_URL", url.as_str())];
    let away = run_with(&world, &["check"], &away).await?.ended_with(3)?;
    ensure!(away.out.contains("DATABASE_URL") && away.out.contains("start the server"), "{}", away.out);
    Ok(())
}
