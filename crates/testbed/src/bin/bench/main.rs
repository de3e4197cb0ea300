//! `cargo xtask bench`: events per second of the kernel and of the service, each as a ratio to what the database alone
//! can do in the same run. It asserts nothing about time: machines differ, and so does one from hour to hour.

mod charging;
mod consuming;
mod cpu;
mod expiry;
mod kernel;
mod limit;
mod report;
mod sequential;
mod table;
mod world;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::Value;
use testbed::clients::sample_orders;

use report::Report;
use world::World;

/// Exit code when a component could not start: nothing was measured then.
const NO_COMPONENT: u8 = 3;

/// Measure events per second, and processor time, beside the limit of the database alone.
///
/// Four measurements on one real Kafka and one durable PostgreSQL: (s) one event at a time, the usual way, where the
/// broker takes at least 5 ms for each commit of an offset; (a) the database alone, in batches, without Kafka; (b) the
/// kernel with a handler that only writes to the database; (c) the whole service, which charges each event. Read the
/// ratios: the figures themselves are the machine's.
///
/// With --expiry, another one instead: the kernel (b) before, while and after millions of old claims are removed, by
/// the drop of partitions and by deletion in turn, in windows of 5 s. It takes a quarter of an hour, and 1 GB of disk
/// for each million events.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Arguments {
    /// How many events: 300,000, or with --expiry 3,000,000 and 4 for each old claim, so that they last.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    events: Option<u32>,
    /// Measure the consumer while old claims are removed, and nothing else.
    #[arg(long)]
    expiry: bool,
    /// How many old claims are removed in each run.
    #[arg(long, default_value_t = 5_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    old_claims: u32,
    /// How many times each variant removes them.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many of them one at a time.
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    sequential: u32,
    /// The most events in one transaction.
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_max: u32,
    /// How long the provider takes for a charge, in milliseconds.
    #[arg(long, default_value_t = 5, value_name = "MS")]
    latency_ms: u64,
    /// The most calls to the provider in flight.
    #[arg(long, default_value_t = 256, value_name = "N")]
    calls_max: u32,
    /// Write the figures as JSON.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let world = match World::start(arguments.latency_ms).await {
        Ok(world) => world,
        Err(error) => {
            eprintln!("bench: a component could not start: {error:?}");
            return ExitCode::from(NO_COMPONENT);
        }
    };
    let measured =
        if arguments.expiry { measure_expiry(&arguments, &world).await } else { measure(&arguments, &world).await };
    match measured.and_then(|figures| write(&arguments, &figures)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments, world: &World) -> Result<Value> {
    let events = sample_orders(usize::try_from(arguments.events())?);
    let batch_max = usize::try_from(arguments.batch_max)?;
    println!("bench: {} events, {} lanes, at most {batch_max} events a unit", events.len(), world::PARTITIONS);
    world.load(&events).await?;

    let few = events.len().min(usize::try_from(arguments.sequential)?);
    let mut report = Report::default();
    report.add("s", "one event at a time", world.rested(sequential::run(world, few).await?).await?);
    report.add("a", "the database alone", world.rested(limit::run(world, &events, batch_max).await?).await?);
    report.add("b", "the kernel", world.rested(kernel::run(world, events.len(), batch_max).await?).await?);
    let calls_max = arguments.calls_max;
    report.add(
        "c",
        "the service",
        world.rested(charging::run(world, events.len(), batch_max, calls_max).await?).await?,
    );
    report.print_ratios();
    Ok(report.to_json())
}

async fn measure_expiry(arguments: &Arguments, world: &World) -> Result<Value> {
    let plan = expiry::Plan {
        events: usize::try_from(arguments.events())?,
        old_claims: arguments.old_claims.into(),
        rounds: arguments.rounds,
        batch_max: usize::try_from(arguments.batch_max)?,
    };
    let expiry::Plan { events, old_claims, batch_max, .. } = plan;
    println!(
        "bench: {old_claims} old claims, {events} events, {} lanes, at most {batch_max} events a unit",
        world::PARTITIONS
    );
    let figures = expiry::run(world, plan).await?;
    figures.print_ratios();
    Ok(figures.to_json())
}

fn write(arguments: &Arguments, figures: &Value) -> Result<()> {
    let Some(path) = &arguments.json else { return Ok(()) };
    std::fs::write(path, format!("{figures:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

impl Arguments {
    fn events(&self) -> u32 {
        let default = if self.expiry { self.old_claims.saturating_mul(4).saturating_add(3_000_000) } else { 300_000 };
        self.events.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
