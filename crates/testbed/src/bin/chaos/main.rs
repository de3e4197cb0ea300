//! `cargo xtask chaos`: kills the service again and again while it charges orders, or does many other things to it and
//! its world, then audits every event. It judges by what others have written (the provider, the tables, the topics),
//! never by what the service says of itself.

mod campaign;
mod report;
mod seeded;
mod watch;
mod world;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use testbed::clients::{audit, sample_orders};

use campaign::Plan;
use seeded::{Ended, Membership, Scenario};
use world::World;

/// Exit code when a component could not start: nothing was tried then.
const NO_COMPONENT: u8 = 3;

/// Charge orders while the service is killed again and again (SIGKILL), then audit every event.
///
/// A real Kafka, a durable PostgreSQL and a payment provider that fails now and then run beside it. With --minutes or
/// --scenario, two processes meet many kinds of faults in turn, from a schedule that the seed decides, and every record
/// has its verdict fixed beforehand. Exit codes: 0 everything is as it should be, 1 something differs, 2 usage, 3 a
/// component could not start.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask chaos")]
struct Arguments {
    /// How many orders are confirmed: by default 100,000, and with --minutes 10,000 a minute.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    orders: Option<u32>,
    /// For how long faults of all kinds are injected.
    #[arg(long, value_name = "M", value_parser = minutes, conflicts_with_all = ["kills", "duplicates"])]
    minutes: Option<f64>,
    /// Only faults of this kind, for a minute if --minutes does not say otherwise.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kills", "duplicates"])]
    scenario: Option<Scenario>,
    /// How the processes share the partitions.
    #[arg(long, value_name = "HOW", default_value = "classic", conflicts_with_all = ["kills", "duplicates"])]
    membership: Membership,
    /// The share of events that are delivered a second time.
    #[arg(long, default_value_t = 0.1, value_name = "0..1", value_parser = share)]
    duplicates: f64,
    /// How often the service is killed, spread over the load.
    #[arg(long, default_value_t = 20, value_name = "N")]
    kills: u32,
    /// The share of charges that meet a fault of the provider.
    #[arg(long, default_value_t = 0.05, value_name = "0..1", value_parser = share)]
    faults: f64,
    /// What duplicates, faults and their schedule, or the moments of the kills, are drawn from; drawn itself if it is not given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The most events in one transaction; by default so that many transactions lie between two kills.
    #[arg(long, value_name = "N")]
    batch_max: Option<u32>,
    /// Leave everything running after the audit until Ctrl-C, to look into it.
    #[arg(long)]
    keep: bool,
    /// Where the logs of the service go, one file a start.
    #[arg(long, default_value = "target/chaos", value_name = "FOLDER")]
    logs: PathBuf,
    /// Write the figures as JSON.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if minutes > 0.0 && minutes <= 1_440.0 { Ok(minutes) } else { Err("is not above 0 and at most a day".to_owned()) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().map_err(|_| "is no number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("is not from 0 to 1".to_owned()) }
}

impl Arguments {
    fn plan(&self) -> Plan {
        let seed = self.seed();
        // Six lanes: some units of each lie between two kills, so that a kill meets all phases of one.
        let between_kills = self.orders() / (self.kills + 1);
        let batch_max = self.batch_max.unwrap_or_else(|| (between_kills / 12).clamp(10, 2_000));
        Plan { kills: self.kills, duplicates: self.duplicates, seed, batch_max }
    }

    fn orders(&self) -> u32 {
        self.orders.unwrap_or(100_000)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()))
    }

    /// The run with many kinds of faults, if that is asked for.
    fn seeded(&self) -> Option<seeded::Plan> {
        if self.minutes.is_none() && self.scenario.is_none() {
            return None;
        }
        Some(seeded::Plan {
            seed: self.seed(),
            time: Duration::from_secs_f64(self.minutes.unwrap_or(1.0) * 60.0),
            scenario: self.scenario.unwrap_or(Scenario::All),
            membership: self.membership,
            orders: self.orders.map(|orders| usize::try_from(orders).expect("at most some billions")),
            faults: self.faults,
            // Small ones, so that many are open whenever something happens.
            batch_max: self.batch_max.unwrap_or(100),
            keep: self.keep,
            logs: self.logs.clone(),
            json: self.json.clone(),
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // While there is only this one thread.
    seeded::take_own_mounts();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => not_started(&error.into()),
    }
}

async fn run(arguments: Arguments) -> ExitCode {
    if let Some(plan) = arguments.seeded() {
        return match seeded::run(&plan).await {
            Ended::Judged(true) => ExitCode::SUCCESS,
            Ended::Judged(false) => ExitCode::FAILURE,
            Ended::NotStarted(error) => not_started(&error),
        };
    }
    let plan = arguments.plan();
    println!(
        "chaos: {} orders, {:.0} % delivered twice, {} kills, {:.1} % of charges with faults, seed {}, at most {} events a unit",
        arguments.orders(),
        arguments.duplicates * 100.0,
        plan.kills,
        arguments.faults * 100.0,
        plan.seed,
        plan.batch_max,
    );
    let world = match World::start(&arguments.logs, arguments.faults, &plan).await {
        Ok(world) => world,
        Err(error) => return not_started(&error),
    };
    let passed = try_and_audit(&arguments, &plan, &world).await.unwrap_or_else(|error| {
        println!("chaos: FAIL (seed {})\n{error:?}", plan.seed);
        false
    });
    if arguments.keep {
        println!("kept until Ctrl-C:\n{world}");
        // Without a signal to wait for there is no keeping.
        drop(tokio::signal::ctrl_c().await);
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn not_started(error: &anyhow::Error) -> ExitCode {
    eprintln!("chaos: a component could not start: {error:?}");
    ExitCode::from(NO_COMPONENT)
}

async fn try_and_audit(arguments: &Arguments, plan: &Plan, world: &World) -> Result<bool> {
    let events = sample_orders(usize::try_from(arguments.orders())?);
    let course = campaign::run(world, plan, &events).await?;
    let books = world.books().await?;
    let defects = audit(&events, &books);
    let figures = report::Figures::gather(world, plan, &course, &books, &defects).await?;
    figures.print();
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", figures.to_json());
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(report::verdict(&defects, plan.seed, &arguments.logs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn many_units_lie_between_two_kills() {
        let batch_max = |orders: &str, kills: &str| {
            let arguments = Arguments::parse_from(["chaos", "--orders", orders, "--kills", kills]);
            arguments.plan().batch_max
        };
        assert_eq!(batch_max("100000", "20"), 396);
        assert_eq!(batch_max("10", "20"), 10);
        assert_eq!(batch_max("10000000", "0"), 2_000);
    }
}
