//! The commands and what each of them runs. No wiring of adapters here: that is `compose`.

use std::net::SocketAddr;

use anyhow::Error;
use clap::{Args, Parser, Subcommand};

use crate::compose;
use crate::config::Config;
use crate::operators::{self, commands::Operate};
use crate::telemetry;

/// Charges each confirmed order once.
///
/// Consumes OrderConfirmed from Kafka, claims each event in PostgreSQL and charges it through a payment provider
/// with the event's id as idempotency key. Every option is also an environment variable. Exit codes: 0 clean,
/// 1 a finding, 2 usage or configuration, 3 a dependency.
#[derive(Debug, Parser)]
#[command(name = "app-billing", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
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
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve a payment provider for trying things out: real Idempotency-Key behaviour, faults on demand.
    SandboxProvider(SandboxProvider),
    /// For operators.
    #[command(flatten)]
    Operate(Operate),
}

/// The sandbox provider's options.
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
    /// Runs the command to its end.
    pub async fn execute(self) -> Result<(), Failure> {
        telemetry::install_logs(&self.config.log, self.config.log_format).map_err(Failure::Configuration)?;
        match self.command.unwrap_or(Command::Run) {
            Command::Run => compose::run(self.config.checked()?).await,
            Command::Migrate => compose::migrate(self.config.checked_database()?).await,
            Command::Config { json } => {
                let settings = self.config.checked()?;
                print!("{}", if json { settings.to_json() } else { settings.to_text() });
                Ok(())
            }
            Command::SandboxProvider(options) => compose::sandbox_provider(options).await,
            Command::Operate(command) => operators::compose::operate(command, self.config.checked()?).await,
        }
    }
}
