//! Runs the testbed's program with the embedded broker. The Kafka client is in that program, so that this one is built
//! without.

use anyhow::{Context, Result, bail};
use testbed::embedded;

use super::{components::Components, holder, skips};
use crate::cargo::{Libraries, built, whole_workspace};

/// Starts both components. The program is built with the tests, whose libraries it has: one build of all.
///
/// # Errors
/// When the tests do not compile.
pub(super) fn start(libraries: Libraries) -> Result<Components> {
    println!("building the tests, and with them the program that holds the broker");
    let mut build = whole_workspace("test", libraries);
    build.arg("--no-run");
    if !build.status().context("cannot run cargo test")?.success() {
        bail!("the tests do not compile");
    }
    let started = embedded::start(&built("embedded")?, |note| println!("{note}"));
    let mut components = holder::components("embedded", started);
    components.cannot(skips::EMBEDDED);
    Ok(components)
}
