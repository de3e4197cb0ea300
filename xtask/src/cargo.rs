//! How the other commands call cargo; what they call it for is theirs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use clap::{Args, builder::FalseyValueParser};

/// Features that build the tests which need the components. A crate whose `tests/it` has `required-features` adds its
/// own here.
const INTEGRATION_FEATURES: &[&str] = &[
    "adapters-kafka/integration",
    "app-billing/crash-points",
    "app-billing/integration",
    "infra-postgres/integration",
    "sandbox/integration",
    "testbed/embedded",
    "testbed/integration",
    "testbed/tools",
];

/// Which OpenSSL and zlib the workspace is linked with.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Libraries {
    /// Link the system's OpenSSL and zlib instead of building them (`--no-default-features`).
    #[arg(long, env = "SYSTEM_LIBS", value_parser = FalseyValueParser::new())]
    system_libs: bool,
}

impl Libraries {
    /// Makes a command of cargo's build that way.
    pub(crate) fn apply(self, command: &mut Command) {
        if self.system_libs {
            command.arg("--no-default-features");
        }
    }
}

/// `cargo <subcommand> --workspace` over everything, the integration tests included.
pub(crate) fn whole_workspace(subcommand: &str, libraries: Libraries) -> Command {
    let mut command = cargo(subcommand);
    command.args(["--workspace", "--features", &INTEGRATION_FEATURES.join(",")]);
    libraries.apply(&mut command);
    command
}

/// `cargo <subcommand>` in the root of the workspace.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(program());
    command.arg(subcommand).current_dir(workspace_root());
    command
}

/// Where cargo puts a program of the workspace that it builds for development.
pub(crate) fn built(program_name: &str) -> Result<PathBuf> {
    let metadata = MetadataCommand::new().cargo_path(program()).current_dir(workspace_root()).no_deps().exec();
    let target = metadata.context("cargo metadata failed")?.target_directory;
    Ok(target.join("debug").join(program_name).into())
}

/// The cargo that runs us.
pub(crate) fn program() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// The folder of the workspace's Cargo.toml.
pub(crate) fn workspace_root() -> PathBuf {
    // cargo sets it for the command it runs; what was compiled in serves a binary that is started by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(), PathBuf::from);
    manifest.parent().expect("xtask is a folder of the workspace").to_owned()
}
