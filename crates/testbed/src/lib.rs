//! Real components, faults and waits for the integration tests; never shipped, so no product crate may need it to build.
//!
//! - [`Backend`]: where the components of this run are; every scenario starts here.
//! - [`PrivatePostgres`], [`LocalKafka`]: real servers under a temporary folder that cannot outlive the process that
//!   started them. `cargo xtask test-integration` starts one of each; an outage test starts its own.
//! - [`Proxy`]: a TCP proxy that holds, resets, refuses or swallows, all connections or the one with a certain request.
//! - [`wait_until`]: a condition with a limit, in place of a sleep.
//! - [`report_skip`]: says that a test could not run, and why.
//! - [`containers`], [`embedded`]: the run's components in a program of their own, which a [`holder`] ends with us.
//! - `clients` (a feature): what a scenario does to Kafka, the ledger, the provider and the service itself.

mod backend;
#[cfg(feature = "clients")]
pub mod clients;
pub mod containers;
pub mod embedded;
pub mod holder;
mod kafka;
mod postgres;
mod proxy;
mod skip;
mod wait;

pub use backend::{Backend, unique_name};
pub use kafka::{KafkaOptions, LocalKafka};
pub use postgres::{PostgresOptions, PrivatePostgres};
pub use proxy::{Loss, Mode, Proxy};
use sandbox::{port, supervised};
pub use skip::{SKIP_LOG_VARIABLE, report_skip};
pub use wait::wait_until;
