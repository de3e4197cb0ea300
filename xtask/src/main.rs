//! Developer commands, one match on subcommands; nothing that the product needs to run may live here.

mod cargo;
mod ci;
mod mutate;
mod test_integration;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of this workspace.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all tests on a real Kafka and a real PostgreSQL, which are started and ended with the run.
    TestIntegration(test_integration::Arguments),
    /// Measure events per second beside the limit of the database alone (--help shows the options).
    Bench(tools::Arguments),
    /// Kill the service again and again while it charges orders, then audit every event (--help shows the options).
    Chaos(tools::Arguments),
    /// Take one guard out at a time, and show which tests turn red.
    Mutate(mutate::Arguments),
    /// Check the architecture: who depends on whom, and the shape of the files.
    Tidy,
    /// Run everything that a change must pass, the quickest first.
    Ci(ci::Arguments),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Command::TestIntegration(arguments) => test_integration::run(&arguments),
        Command::Bench(arguments) => tools::run("bench", &arguments),
        Command::Chaos(arguments) => tools::run("chaos", &arguments),
        Command::Mutate(arguments) => mutate::run(&arguments),
        Command::Tidy => tidy::run(),
        Command::Ci(arguments) => ci::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:?}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
