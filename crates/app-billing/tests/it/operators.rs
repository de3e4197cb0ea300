//! The operators' commands, typed as an operator types them, beside and between runs of the service.

mod audits;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use core_order::{Event, OrderConfirmed};
use sandbox::provider::{FaultKind, Provider, ProviderSettings};
use serde_json::Value;
use sqlx::Connection;
use testbed::clients::{Service, run_to_end, sample_orders};

use crate::world::{SOON, TIERS, World, verdicts};

/// A command that has ended.
pub(crate) struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    pub(crate) fn ended_with(self, code: i32) -> Result<Self> {
        ensure!(self.code == Some(code), "exit code {:?}, not {code}\n{}\n{}", self.code, self.out, self.err);
        Ok(self)
    }

    /// Whether it said this to whoever started it.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.err.contains(text)
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| self.out.clone())
    }
}

pub(crate) async fn run(world: &World, arguments: &[&str]) -> Result<Ended> {
    run_with(world, arguments, &[]).await
}

pub(crate) async fn run_with(world: &World, arguments: &[&str], more: &[(&str, &str)]) -> Result<Ended> {
    let settings = world.settings();
    let mut settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.extend_from_slice(more);
    let output = run_to_end(arguments, &settings, SOON).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) })
}

async fn stopped(mut service: Service) -> Result<()> {
    service.terminate()?;
    service.wait(SOON).await.map(drop)
}

/// Stops it and waits until the broker knows that it is gone.
async fn left(world: &World, service: Service) -> Result<()> {
    stopped(service).await?;
    let nobody = format!("{} has 0 members", world.group);
    world
        .until("the group to be empty", async || {
            run(world, &["check"]).await.is_ok_and(|check| check.out.contains(&nobody))
        })
        .await
}

async fn sql(world: &World, statement: &'static str) -> Result<u64> {
    let mut session = sqlx::PgConnection::connect(&world.database_url).await?;
    let done = sqlx::query(statement).execute(&mut session).await?.rows_affected();
    session.close().await?;
    Ok(done)
}

/// A world in which all orders were declined and nothing runs; the provider declines nothing any more.
async fn declined(orders: &[OrderConfirmed]) -> Result<World> {
    let mut world = World::new(1, ProviderSettings { decline_share: 1.0, ..ProviderSettings::default() }).await?;
    world.send(orders).await?;
    let service = world.service().await?;
    let letters = async || world.dead_letters().await.is_ok_and(|letters| letters.len() == orders.len());
    world.until("the dead letters", letters).await?;
    world.settled(0).await?;
    stopped(service).await?;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    world.provider = Provider::start(address, ProviderSettings::default()).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_event_that_is_replayed_after_the_decline_was_lifted_is_charged_once() -> Result<()> {
    let orders = sample_orders(3);
    let world = declined(&orders).await?;
    let listed = run(&world, &["dlq", "list", "--json"]).await?.ended_with(0)?.json()?;
    let listed = listed.as_array().context("a list")?;
    ensure!(listed.len() == 3 && listed.iter().all(|letter| letter["class"] == "declined"), "{listed:?}");
    let id = orders[1].id().to_string();
    let one = run(&world, &["dlq", "list", "--id", &id]).await?.ended_with(0)?;
    ensure!(one.out.lines().count() == 2 && one.out.contains(&id), "{}", one.out);

    let _service = world.service().await?;
    run(&world, &["dlq", "replay", "--id", &id]).await?.ended_with(0)?;
    world.settled(1).await?;
    world.charged_exactly(&orders[1..2]).await?;
    let copies = world.kafka.read_all(&world.retry_topic(TIERS[0])).await?;
    ensure!(copies.len() == 1 && copies[0].payload.as_deref() == Some(orders[1].to_json().as_slice()));
    ensure!(copies[0].header("delivery-replays") == Some("1") && copies[0].header("delivery-attempts") == Some("0"));

    let sent = run(&world, &["dlq", "replay", "--class", "declined"]).await?.ended_with(0)?;
    ensure!(sent.out.contains("3 letters sent"), "{}", sent.out);
    world.settled(3).await?;
    world.charged_exactly(&orders).await?;
    let audit = run(&world, &["audit", "--json", "--provider"]).await?.ended_with(0)?.json()?;
    ensure!(audit["applied"] == 3 && audit["dead_lettered"] == 0 && audit["retried"] == 3, "{audit}");
    Ok(())
}

/// R4: a replay does not go round the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_done_event_is_a_duplicate() -> Result<()> {
    let orders = sample_orders(5);
    let world = declined(&orders).await?;
    let service = world.service().await?;
    run(&world, &["dlq", "replay", "--all"]).await?.ended_with(0)?;
    world.settled(5).await?;
    let calls = world.provider.record().summary.calls;
    run(&world, &["dlq", "replay", "--since", "1h"]).await?.ended_with(0)?;
    world.until("5 duplicates", async || verdicts(&service, "duplicate").await.is_ok_and(|count| count == 5)).await?;
    ensure!(world.provider.record().summary.calls == calls, "the claim answers, not the provider");
    world.charged_exactly(&orders).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_a_replay_of_nothing_named_send_nothing() -> Result<()> {
    let orders = sample_orders(2);
    let world = declined(&orders).await?;
    let plan = run(&world, &["dlq", "replay", "--all", "--dry-run"]).await?.ended_with(0)?;
    ensure!(plan.out.contains(&orders[0].id().to_string()) && plan.out.contains("2 letters would go"), "{}", plan.out);
    let refused = run(&world, &["dlq", "replay"]).await?.ended_with(2)?;
    ensure!(refused.err.contains("--all"), "{}", refused.err);
    let unknown = core_order::EventId::generate().to_string();
    run(&world, &["dlq", "replay", "--id", &unknown]).await?.ended_with(1)?;
    ensure!(world.kafka.end_offsets(&world.retry_topic(TIERS[0])).await? == [0]);
    ensure!(world.dead_letters().await?.len() == 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_in_doubt_are_replayed_only_after_a_yes_and_stay_in_doubt() -> Result<()> {
    let faults = ProviderSettings {
        fault_share: 1.0,
        fault_kinds: vec![FaultKind::ErrorAfterCharge],
        max_faults_per_key: u32::MAX,
        ..ProviderSettings::default()
    };
    let world = World::new(1, faults).await?;
    world.send(&sample_orders(1)).await?;
    let _service = world.service().await?;
    let letters = async |count| world.dead_letters().await.is_ok_and(|letters| letters.len() == count);
    world.until("the dead letter", async || letters(1).await).await?;
    let refused = run(&world, &["dlq", "replay", "--all"]).await?.ended_with(2)?;
    ensure!(refused.err.contains("the money may have moved"), "{}", refused.err);
    let copies = world.kafka.end_offsets(&world.retry_topic(TIERS[0])).await?;
    run(&world, &["dlq", "replay", "--all", "--yes"]).await?.ended_with(0)?;
    world.until("the second letter", async || letters(2).await).await?;
    ensure!(world.kafka.end_offsets(&world.retry_topic(TIERS[0])).await? == [copies[0] + 1]);
    let listed = run(&world, &["dlq", "list", "--json"]).await?.ended_with(0)?.json()?;
    let letter = &listed[0];
    ensure!(listed.as_array().is_some_and(|listed| listed.len() == 1), "one for each origin: {listed}");
    ensure!(letter["letters"] == 2 && letter["replays"] == 1 && letter["class"] == "in_doubt", "{letter}");
    ensure!(letter["attempts"] == 2, "counted from the beginning: {letter}");
    Ok(())
}

/// R6: the first replay is stopped in the middle, wherever that is, and the second is refused for as long.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_replay_is_refused_while_one_runs() -> Result<()> {
    let world = declined(&sample_orders(3)).await?;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_app-billing"));
    command.args(["dlq", "replay", "--all"]).envs(world.settings()).kill_on_drop(true);
    let mut first = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let process = first.id().context("it runs")?.to_string();
    let mut session = sqlx::PgConnection::connect(&world.database_url).await?;
    let held = "select count(*) from pg_locks where locktype = 'advisory' and granted \
                and database = (select oid from pg_database where datname = current_database())";
    let is_held = async || sqlx::query_scalar(held).fetch_one(&mut session).await.is_ok_and(|count: i64| count > 0);
    world.until("the lock", is_held).await?;
    signal("-STOP", &process).await?;
    let second = run(&world, &["dlq", "replay", "--all"]).await?.ended_with(2)?;
    ensure!(second.err.contains("another replay"), "{}", second.err);
    signal("-CONT", &process).await?;
    let status = tokio::time::timeout(SOON, first.wait()).await??;
    ensure!(status.success(), "{status}");
    ensure!(world.kafka.end_offsets(&world.retry_topic(TIERS[0])).await? == [3]);
    run(&world, &["dlq", "replay", "--all"]).await?.ended_with(0)?;
    Ok(())
}

async fn signal(name: &str, process: &str) -> Result<()> {
    let done = tokio::process::Command::new("kill").args([name, process]).status().await?;
    ensure!(done.success(), "kill {name}: {done}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_set_only_while_nobody_consumes_and_then_both_ways() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(10);
    world.send(&orders).await?;
    let service = world.service().await?;
    world.settled(10).await?;
    let set = async |offset: &str| {
        let topic = world.topic.as_str();
        run(&world, &["positions", "set", "--topic", topic, "--partition", "0", "--offset", offset]).await
    };
    let refused = set("0").await?.ended_with(2)?;
    ensure!(refused.err.contains("1 members"), "{}", refused.err);
    left(&world, service).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(10)], "nothing was changed");

    ensure!(set("11").await?.ended_with(2)?.err.contains("0 to 9"));
    let back = set("0").await?.ended_with(0)?;
    let place = format!("{}/0", world.topic);
    let expected = [
        format!("before: {place} committed in Kafka 10, stored 10"),
        format!("after: {place} committed in Kafka 0, stored 0"),
    ];
    ensure!(back.out.lines().eq(expected), "{}", back.out);
    ensure!(back.err.contains("position set by an operator"), "it is audited: {}", back.err);
    let service = world.service().await?;
    world.until("10 duplicates", async || verdicts(&service, "duplicate").await.is_ok_and(|count| count == 10)).await?;
    world.settled(10).await?;
    left(&world, service).await?;

    let more = sample_orders(5);
    world.send(&more).await?;
    set("13").await?.ended_with(0)?;
    let shown = run(&world, &["positions", "show", "--json"]).await?.ended_with(0)?.json()?;
    let lane = &shown[0];
    ensure!(
        (&lane["committed"], &lane["stored"], &lane["starts_at"], &lane["end"])
            == (&13.into(), &13.into(), &13.into(), &15.into()),
        "{lane}"
    );
    let _service = world.service().await?;
    world.settled(12).await?;
    world.charged_exactly(&[&orders[..], &more[3..]].concat()).await
}

/// Another program consumed for the group before: Kafka has its offsets, and this database neither claims nor positions.
#[tokio::test(flavor = "multi_thread")]
async fn a_taken_over_group_starts_once_its_claims_and_positions_are_imported() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(3);
    world.send(&orders).await?;
    run(&world, &["migrate"]).await?.ended_with(0)?;
    sql(&world, "create table old_claims (event_id uuid, consumer_group text, processed_at timestamptz)").await?;
    let mut session = sqlx::PgConnection::connect(&world.database_url).await?;
    sqlx::query("insert into old_claims values ($1, $2, now() - interval '1 hour')")
        .bind(orders[0].id().as_uuid())
        .bind(&world.group)
        .execute(&mut session)
        .await?;
    world.kafka.reset_to_earliest(&world.group, &world.topic).await?;

    let service = world.service().await?;
    let refusal = async || service.readiness().await.is_ok_and(|(_, reasons)| reasons.contains("positions import"));
    world.until("the refusal", refusal).await?;
    let shown = run(&world, &["check"]).await?.ended_with(1)?;
    ensure!(shown.out.contains("positions import"), "{}", shown.out);
    ensure!(run(&world, &["positions", "import"]).await?.ended_with(2)?.err.contains("members"));
    left(&world, service).await?;

    let claims = run(&world, &["claims", "import", "--table", "old_claims"]).await?.ended_with(0)?;
    ensure!(claims.out.contains("1 claims read from old_claims, 1 imported"), "{}", claims.out);
    run(&world, &["claims", "import", "--table", "no_such_table"]).await?.ended_with(2)?;
    let imported = run(&world, &["positions", "import"]).await?.ended_with(0)?;
    ensure!(imported.out.contains("1 positions taken over"), "{}", imported.out);

    let service = world.service().await?;
    world.settled(2).await?;
    ensure!(verdicts(&service, "duplicate").await? == 1);
    ensure!(world.provider.record().summary.calls == 2, "what the other program charged is not charged again");
    let audit = run(&world, &["audit", "--json"]).await?.ended_with(0)?.json()?;
    ensure!(audit["applied"] == 3, "{audit}");
    Ok(())
}
