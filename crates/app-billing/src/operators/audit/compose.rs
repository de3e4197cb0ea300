//! The audit put together: which facts are read from where, and in which order. It judges nothing.

use adapters_tokio::TokioRuntime;
use anyhow::anyhow;
use core_delivery::ports::Runtime;
use core_order::OrderConfirmedDecoder;

use super::super::compose::{Desk, database};
use super::super::dlq;
use super::super::provider::NoAnswer;
use super::super::table::{Progress, show};
use super::{Audit, Report, books, topics};
use crate::cli::Failure;
use crate::compose::open_database;

/// Audits and shows the report.
pub async fn run(desk: &Desk, json: bool, with_provider: bool) -> Result<(), Failure> {
    let report = collect(desk, with_provider).await?;
    show(&if json { format!("{:#}\n", report.to_json()) } else { report.to_text() });
    if report.is_clean() {
        return Ok(());
    }
    let Report { lost, charged_twice, unexpected, .. } = report;
    let error = anyhow!("{lost} lost, {charged_twice} charged twice, {unexpected} unexpected");
    Err(Failure::Finding(error))
}

/// Collects the facts and judges them.
pub async fn collect(desk: &Desk, with_provider: bool) -> Result<Report, Failure> {
    let (units, maintenance) = open_database(&desk.settings.database).await?;
    let (config, group) = (&desk.settings.config, &desk.topology.group);
    // The positions first, so that whatever they have passed is found by what is read later.
    let facts = desk.facts(&[desk.topology.consumed(), vec![desk.topology.dead_letters.clone()]].concat()).await?;
    let stored = desk.stored(&maintenance).await?;
    let positions = topics::Positions::new(&facts, |lane| stored.get(lane).cloned().unwrap_or_default());
    // Then the instant, before the topics: what was claimed until then was produced before.
    let until = books::now(&units).await.map_err(database)?;
    let topics = topics::Topics {
        kafka: &desk.kafka,
        topology: &desk.topology,
        decoder: &OrderConfirmedDecoder::new(config.currency),
        positions: &positions,
        clock_skew: config.clock_skew,
        now: TokioRuntime::current().now(),
    };
    let mut audit = Audit::default();
    let mut horizons = topics.read(&mut audit).await.map_err(dlq::failure)?;
    horizons.claims = books::floor(&units, group).await.map_err(database)?;
    audit.set_horizons(horizons);
    books::read(&units, group, until, &mut audit).await.map_err(database)?;
    if with_provider {
        ask_provider(desk, &mut audit).await?;
    }
    Ok(audit.report())
}

async fn ask_provider(desk: &Desk, audit: &mut Audit) -> Result<(), Failure> {
    let mut progress = Progress::of("charges of the provider read");
    let questions = desk.questions().map_err(no_answer)?;
    let listing = questions.succeeded(|key, order, count| {
        progress.reach(count);
        audit.provider_charge(key, order);
    });
    match listing.await {
        Ok(_) => {
            audit.provider_was_asked();
            Ok(())
        }
        Err(NoAnswer::NotOffered(reason)) => {
            eprintln!("the provider {reason}: its record is not compared");
            Ok(())
        }
        Err(error) => Err(no_answer(error)),
    }
}

fn no_answer(error: NoAnswer) -> Failure {
    let reason = anyhow!("the payment provider: {}", error.reason());
    match error {
        NoAnswer::Settings(_) | NoAnswer::Refused(_) => Failure::Configuration(reason),
        NoAnswer::Unreachable(_) | NoAnswer::NotOffered(_) => Failure::Dependency(reason),
    }
}
