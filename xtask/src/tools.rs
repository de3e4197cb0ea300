//! `cargo xtask chaos` and `cargo xtask bench`: builds the service and the program that tries it, and runs the
//! latter; what is tried and measured is the program's own, in the testbed.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use clap::Args;

use crate::cargo::{self, Libraries, workspace_root};

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    libraries: Libraries,
    /// The options of the program itself; --help shows them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// Builds the programs in release at once, so that they share what they depend on, and runs the one.
///
/// Returns the program's own exit code.
pub(crate) fn run(program: &str, arguments: &Arguments) -> Result<ExitCode> {
    let mut build = cargo::cargo("build");
    build.args(["--release", "--package=app-billing", "--package=testbed"]);
    // Without its default features the service has no provider to be tried with.
    build.arg("--features=app-billing/embedded,testbed/tools");
    build.args(["--bin=app-billing", "--bin", program]);
    if program == "chaos" {
        // Its second service.
        build.arg("--bin=ordered");
    }
    arguments.libraries.apply(&mut build);
    if !build.status().context("cannot run cargo build")?.success() {
        bail!("{program} cannot be tried: it does not compile");
    }
    let metadata = MetadataCommand::new().cargo_path(cargo::program()).current_dir(workspace_root()).no_deps().exec();
    let built = metadata.context("cargo metadata failed")?.target_directory.join("release").join(program);
    let status = Command::new(&built).args(&arguments.options).current_dir(workspace_root()).status();
    let status = status.with_context(|| format!("cannot run {built}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
