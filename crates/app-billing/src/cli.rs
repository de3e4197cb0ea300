//! The commands and what each of them runs. No wiring of adapters here: that is `compose`.

use std::io::Write;
#[cfg(feature = "embedded")]
use std::net::SocketAddr;

use anyhow::Error;
#[cfg(feature = "embedded")]
use clap::Args;
#[cfg(feature = "embedded")]
use clap::{ArgMatches, parser::ValueSource};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::compose;
use crate::config::Config;
#[cfg(feature = "embedded")]
use crate::embedded::{self, EmbeddedOptions};
use crate::operators::{self, commands::Operate};
use crate::{reference, telemetry};

/// How it is begun with, and how it ends.
const EXAMPLES: &str = "\
Examples:
  app-billing --until-idle             Try it, with nothing installed or configured, and audit the result
  app-billing check                    Whether everything that KAFKA_BROKERS, DATABASE_URL and PAYMENT_URL name can be used
  app-billing dlq list --since 2h      What could not be handled in the last two hours

Exit codes: 0 clean, 1 a finding, 2 usage or configuration, 3 a dependency";

/// Charges each confirmed order once.
///
/// Consumes OrderConfirmed from Kafka, claims each event in PostgreSQL and charges it through a payment provider
/// with the event's id as idempotency key. With nothing configured it starts a world of its own to try it in. Options
/// that name an environment variable can be set by it.
#[derive(Debug, Parser)]
#[command(name = "app-billing", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[cfg(feature = "embedded")]
    #[command(flatten)]
    embedded: EmbeddedOptions,
    #[command(flatten)]
    config: Config,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Consume and charge until SIGTERM or SIGINT, then drain and leave (the default).
    Run,
    /// Bring the database to this version's schema and make the partitions of the coming days.
    Migrate,
    /// Show the effective configuration, without secrets, after checking it.
    Config {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
        /// Instead of the values in effect, describe all options: docs/configuration.md.
        #[arg(long, conflicts_with = "json")]
        reference: bool,
    },
    /// Print what makes a shell complete commands and options; docs/operations.md says where to put it.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Serve a payment provider for trying things out: real Idempotency-Key behaviour, faults on demand.
    #[cfg(feature = "embedded")]
    SandboxProvider(SandboxProvider),
    /// For operators.
    #[command(flatten)]
    Operate(Operate),
}

/// The sandbox provider's options.
#[cfg(feature = "embedded")]
#[derive(Debug, Args)]
pub struct SandboxProvider {
    /// Where to listen. Port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// How long each answer takes, in milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub latency_ms: u64,
    /// The share of idempotency keys that meet faults: errors before and after the charge, resets, cut bodies.
    #[arg(long, default_value_t = 0.0, value_name = "0..1")]
    pub fault_share: f64,
    /// How many tries of such a key meet a fault before it works.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub max_faults_per_key: u32,
    /// The share of idempotency keys that are declined with 402.
    #[arg(long, default_value_t = 0.0, value_name = "0..1")]
    pub decline_share: f64,
    /// The seed of faults and declines: the same seed gives the same ones.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// Why a command ended without success: its exit code.
#[derive(Debug)]
pub enum Failure {
    /// It ran and found something wrong.
    Finding(Error),
    /// It was told something that cannot be.
    Configuration(Error),
    /// Something that it needs does not work.
    Dependency(Error),
}

impl Failure {
    /// What to show.
    pub fn error(&self) -> &Error {
        match self {
            Self::Finding(error) | Self::Configuration(error) | Self::Dependency(error) => error,
        }
    }
}

impl Cli {
    /// Reads the command line and the environment. What cannot be read ends the process: help and version with 0, an
    /// error with 2.
    pub fn read() -> Self {
        let matches = Self::command().get_matches();
        let read = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        #[cfg(feature = "embedded")]
        let read = read.suited(&matches);
        read
    }

    /// With the defaults of the embedded run, if that is what is asked for.
    #[cfg(feature = "embedded")]
    fn suited(self, matches: &ArgMatches) -> Self {
        if self.is_embedded() {
            let is_default = |option: &str| matches.value_source(option) == Some(ValueSource::DefaultValue);
            return Self {
                embedded: EmbeddedOptions { any_port: is_default("http_addr"), ..self.embedded },
                config: self.config.with_embedded_defaults(is_default),
                ..self
            };
        }
        self
    }

    #[cfg(feature = "embedded")]
    fn is_embedded(&self) -> bool {
        matches!(self.command, None | Some(Command::Run)) && self.config.names_nothing()
    }

    /// Runs the command to its end.
    pub async fn execute(self) -> Result<(), Failure> {
        telemetry::install_logs(&self.config.log, self.config.log_format).map_err(Failure::Configuration)?;
        #[cfg(feature = "embedded")]
        if self.is_embedded() {
            return embedded::run(self.embedded, self.config).await;
        }
        #[cfg(feature = "embedded")]
        if let Some(option) = self.embedded.given() {
            return Err(Failure::Configuration(anyhow::anyhow!(
                "{option} belongs to the embedded run, which needs KAFKA_BROKERS, DATABASE_URL and PAYMENT_URL unset and \
                 no other command: sample orders must never meet a real provider"
            )));
        }
        match self.command.unwrap_or(Command::Run) {
            Command::Run => compose::run(self.config.checked()?).await,
            Command::Migrate => compose::migrate(self.config.checked_database()?).await,
            Command::Config { reference: true, .. } => print(&reference::page()),
            Command::Config { json, .. } => {
                let settings = self.config.checked()?;
                compose::check_clients(&settings)?;
                print(&if json { settings.to_json() } else { settings.to_text() })
            }
            Command::Completions { shell } => print(&completions(shell)),
            #[cfg(feature = "embedded")]
            Command::SandboxProvider(options) => compose::sandbox_provider(options).await,
            Command::Operate(command) => operators::compose::operate(command, self.config.checked()?).await,
        }
    }
}

/// A script that makes the shell complete commands and options.
fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "app-billing", &mut script);
    let script = String::from_utf8(script).expect("a script of words is text");
    // For a program with a hyphen bash's script sets states that none of its arms match (clap-rs/clap#6421).
    script.replace("app__subcmd__billing", "app__billing")
}

/// On standard output. A reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Dependency(Error::new(error).context("cannot write to standard output")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_shell_completes_commands_and_options() {
        let script = completions(Shell::Bash);
        let states: Vec<&str> =
            script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"')).collect();
        for command in ["sandbox__subcmd__provider", "dlq__subcmd__replay", "positions__subcmd__set"] {
            assert!(states.iter().any(|state| state.ends_with(command)), "{command}");
        }
        for state in states {
            let arm = script.split(&format!("\n        {state})\n")).nth(1).unwrap_or_default();
            let words = arm.lines().next().unwrap_or_default();
            assert!(state.is_empty() || words.contains("opts="), "bash completes nothing after {state}");
            assert!(state != "app__billing__subcmd__dlq__subcmd__replay" || words.contains(" --dry-run"), "{words}");
        }
    }
}
