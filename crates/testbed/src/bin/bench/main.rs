//! `cargo xtask bench`: events per second of the kernel and of the service, each as a ratio to what the database alone
//! can do in the same run. It asserts nothing about time: machines differ, and so does one from hour to hour.

mod charging;
mod cpu;
mod kernel;
mod limit;
mod report;
mod sequential;
mod table;
mod world;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use testbed::clients::sample_orders;

use report::Report;
use world::World;

/// Exit code when a component could not start: nothing was measured then.
const NO_COMPONENT: u8 = 3;

/// Measure events per second, and processor time, beside the limit of the database alone.
///
/// Four measurements on one real Kafka and one durable PostgreSQL: (s) one event at a time, the usual way, where the
/// broker takes at least 5 ms for each commit of an offset; (a) the database alone, in batches, without Kafka; (b) the kernel with a handler that only writes to the database; (c) the
/// whole service, which charges each event. Read the ratios: the figures themselves are the machine's.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Arguments {
    /// How many events.
    #[arg(long, default_value_t = 300_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,
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
    match measure(&arguments, &world).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments, world: &World) -> Result<()> {
    let events = sample_orders(usize::try_from(arguments.events)?);
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
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
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
