//! The service's program: where it is and how it is run; what it is run for is the caller's.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::time::timeout;

use crate::supervised::Supervised;

/// Variable with the path of the program, for one that is not built beside us.
const PROGRAM_VARIABLE: &str = "TEST_APP_BILLING";
/// Its name in the folder of a profile.
const PROGRAM: &str = "app-billing";
/// What it has of our environment: everything that configures it comes from the test.
const INHERITED: &[&str] = &["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Runs the program with these arguments and variables and nothing else, and waits for its end.
///
/// # Errors
/// When it is not built, or has not ended after `limit`; then it is killed.
pub async fn run_to_end(arguments: &[&str], variables: &[(&str, &str)], limit: Duration) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.args(arguments).stdin(Stdio::null());
    with_environment(&mut command, variables);
    let mut command = tokio::process::Command::from(command);
    let output = timeout(limit, command.kill_on_drop(true).output());
    let output = output.await.with_context(|| format!("{PROGRAM} {arguments:?} did not end within {limit:?}"))?;
    output.with_context(|| format!("cannot run {PROGRAM}"))
}

/// The program under a supervisor, so that it cannot outlive us; not started yet.
pub(super) fn supervised(name: &'static str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Supervised> {
    under_supervision(name, &program()?, arguments, variables)
}

/// The same of another program that was built with us.
pub(super) fn supervised_beside(program: &'static str, variables: &[(&str, &str)]) -> Result<Supervised> {
    let ours = env::current_exe().context("cannot tell where this program is")?;
    let found = beside(&ours, program);
    let found = found.with_context(|| format!("{program} is not built beside {}", ours.display()))?;
    under_supervision(program, &found, &[], variables)
}

fn under_supervision(
    name: &'static str,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<Supervised> {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().map(OsString::from));
    let folder = tempfile::Builder::new().prefix("testapp.").tempdir().context("cannot create a temporary folder")?;
    let mut shell = Command::new("/bin/sh");
    with_environment(&mut shell, variables);
    Ok(Supervised::new(name, shell, folder, "KILL", &command)?)
}

fn with_environment(command: &mut Command, variables: &[(&str, &str)]) {
    let inherited = INHERITED.iter().filter_map(|name| Some((name, env::var_os(name)?)));
    command.env_clear().envs(inherited).envs(variables.iter().copied());
}

/// That of [`PROGRAM_VARIABLE`], else the one that was built with us: beside us, or above if we are a test.
fn program() -> Result<PathBuf> {
    if let Some(path) = env::var_os(PROGRAM_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let ours = env::current_exe().context("cannot tell where this program is")?;
    beside(&ours, PROGRAM).with_context(|| {
        format!(
            "{PROGRAM} is not built beside {}: cargo build --package {PROGRAM}, or set {PROGRAM_VARIABLE}",
            ours.display()
        )
    })
}

fn beside(ours: &Path, program: &str) -> Option<PathBuf> {
    ours.ancestors().skip(1).take(2).map(|folder| folder.join(program)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_beside_a_program_and_above_a_test() {
        let folder = tempfile::tempdir().unwrap();
        let (tool, test) = (folder.path().join("tool"), folder.path().join("deps/it-0a1b"));
        assert_eq!(beside(&tool, PROGRAM), None);
        let program = folder.path().join(PROGRAM);
        std::fs::write(&program, "").unwrap();
        assert_eq!(beside(&tool, PROGRAM).as_ref(), Some(&program));
        assert_eq!(beside(&test, PROGRAM).as_ref(), Some(&program));
    }
}
