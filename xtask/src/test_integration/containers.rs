//! Builds the testbed's program with the containers and runs it. The Docker client is in that program, so that this
//! one, and the tests, are built without.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use testbed::containers::{self, Images, engine_in_sight};

use super::{components::Components, holder};
use crate::cargo::{self, Libraries, built};

const BACKEND: &str = "docker";

/// Starts both components as containers. Where no container can run, that is the one failure.
pub(super) fn start(libraries: Libraries) -> Result<Components> {
    if let Err(reason) = engine_in_sight() {
        return Ok(holder::components(BACKEND, Err(reason)));
    }
    let program = build(libraries)?;
    let images = Images::from_env();
    println!("starting Kafka ({}) and PostgreSQL ({}) as containers", images.kafka, images.postgres);
    let started = containers::start(&program, &images, |note| println!("{note}"));
    Ok(holder::components(BACKEND, started))
}

fn build(libraries: Libraries) -> Result<PathBuf> {
    println!("building the program that runs containers");
    let mut build = cargo::cargo("build");
    build.args(["--package=testbed", "--features=testbed/containers", "--bin=containers"]);
    libraries.apply(&mut build);
    if !build.status().context("cannot run cargo build")?.success() {
        bail!("the program that runs containers does not compile");
    }
    built("containers")
}
