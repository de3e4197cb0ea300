//! Builds the testbed's program with the containers and runs it. The Docker client is in that program, so that this
//! one, and the tests, are built without.

use std::path::PathBuf;

use anyhow::{Context, Error, Result, bail};
use cargo_metadata::MetadataCommand;
use testbed::containers::{Containers, Images, engine_in_sight};

use super::components::{Components, Failure};
use crate::cargo::{self, Libraries, workspace_root};

/// Starts both components as containers. Where no container can run, that is the one failure.
pub(super) fn start(libraries: Libraries) -> Result<Components> {
    if let Err(reason) = engine_in_sight() {
        return Ok(unavailable(reason));
    }
    let program = build(libraries)?;
    let images = Images::from_env();
    println!("starting Kafka ({}) and PostgreSQL ({}) as containers", images.kafka, images.postgres);
    let containers = match Containers::start(&program, &images, |note| println!("{note}")) {
        Ok(containers) => containers,
        Err(reason) => return Ok(unavailable(reason)),
    };
    let mut components = Components::new("docker");
    for ready in containers.ready() {
        components.add(ready.component, &ready.about, ready.value.clone());
    }
    for (component, error) in containers.failures() {
        components.fail(component.name(), Error::msg(error.clone()));
    }
    components.hold(containers);
    Ok(components)
}

fn unavailable(reason: Error) -> Components {
    let mut components = Components::new("docker");
    components.fail(Failure::BACKEND, reason);
    components
}

fn build(libraries: Libraries) -> Result<PathBuf> {
    println!("building the program that runs containers");
    let mut build = cargo::cargo("build");
    build.args(["--package=testbed", "--features=testbed/containers", "--bin=containers"]);
    libraries.apply(&mut build);
    if !build.status().context("cannot run cargo build")?.success() {
        bail!("the program that runs containers does not compile");
    }
    let metadata = MetadataCommand::new().cargo_path(cargo::program()).current_dir(workspace_root()).no_deps().exec();
    let target = metadata.context("cargo metadata failed")?.target_directory;
    Ok(target.join("debug").join("containers").into())
}
