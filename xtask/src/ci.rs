//! `cargo xtask ci`: the steps that a change must pass, in order; what a step checks is the step's own.

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Args;

use crate::{
    cargo::{Libraries, cargo, whole_workspace},
    test_integration::{self, Backend},
    tidy,
};

/// The program that the tests are built without: it is built when containers are wanted.
const CONTAINERS: &str = "testbed/containers";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where the tests' Kafka and PostgreSQL come from.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Stop before the tests: the caller runs them, on more than one backend.
    #[arg(long)]
    without_tests: bool,
    #[command(flatten)]
    libraries: Libraries,
}

/// Stops at the first step that fails. The last line is that of `test-integration`, where a skipped test fails too; it
/// may be left out.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let libraries = arguments.libraries;
    let steps: [(&str, &dyn Fn() -> Result<bool>); 4] = [
        ("fmt", &|| succeeds(cargo("fmt").args(["--all", "--check"]))),
        ("clippy", &|| {
            let mut clippy = whole_workspace("clippy", libraries);
            succeeds(clippy.args(["--features", CONTAINERS, "--all-targets", "--", "-D", "warnings"]))
        }),
        ("tidy", &tidy::passes),
        ("doc", &|| {
            let mut doc = whole_workspace("doc", libraries);
            succeeds(doc.args(["--features", CONTAINERS, "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
        }),
    ];
    for (name, step) in steps {
        println!("==> {name}");
        let begun = Instant::now();
        let passed = step().with_context(|| format!("ci stops at {name}"))?;
        let took = begun.elapsed().as_secs_f32();
        if !passed {
            println!("==> {name} failed after {took:.1} s: ci stops here");
            return Ok(ExitCode::FAILURE);
        }
        println!("==> {name} passed in {took:.1} s");
    }
    if arguments.without_tests {
        return Ok(ExitCode::SUCCESS);
    }
    println!("==> test-integration");
    test_integration::run(&test_integration::Arguments::for_ci(arguments.backend, libraries))
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(status.success())
}
