//! One run of tests in the copy, and what it says. A run that does not end is ended.

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::suites::Suite;
use crate::cargo::{Libraries, program};

/// How long a run of tests may take that ends by itself within half of it, without a guard as well as with it.
const LIMIT: Duration = Duration::from_secs(420);
/// How much of what the compiler said is shown.
const SHOWN: usize = 30;

/// How tests are run.
pub(super) struct Trial {
    /// The copy of the workspace.
    pub(super) tree: PathBuf,
    /// What the tests find their components by.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) libraries: Libraries,
}

/// What became of the tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of them passed.
    Green,
    /// These failed; or none did, and they did not come to their end in order.
    Red(Vec<String>),
    /// They had not ended in time. These had failed by then.
    Endless(Vec<String>),
    /// They do not compile, as the compiler says.
    DoesNotCompile(String),
}

impl Outcome {
    /// Whether the tests noticed.
    pub(super) fn is_red(&self) -> bool {
        matches!(self, Self::Red(_) | Self::Endless(_))
    }

    /// The tests that failed.
    pub(super) fn failed(&self) -> &[String] {
        match self {
            Self::Red(failed) | Self::Endless(failed) => failed,
            Self::Green | Self::DoesNotCompile(_) => &[],
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Green => formatter.write_str("green"),
            Self::Red(failed) if failed.is_empty() => formatter.write_str("red: the tests ended out of order"),
            Self::Red(failed) => write!(formatter, "red: {}", failed.join(", ")),
            Self::Endless(failed) => {
                write!(
                    formatter,
                    "red: no end within {} min; failed by then: {}",
                    LIMIT.as_secs() / 60,
                    failed.join(", ")
                )
            }
            Self::DoesNotCompile(said) => write!(formatter, "it does not compile:\n{said}"),
        }
    }
}

impl Trial {
    /// Compiles and runs the tests whose names contain one of `tests`, all of them if it is empty.
    pub(super) fn run(&self, suite: Suite, tests: &[&str]) -> Result<Outcome> {
        let compiled = self.cargo_test(suite).arg("--no-run").output().context("cannot run cargo test")?;
        if !compiled.status.success() {
            let said = String::from_utf8_lossy(&compiled.stderr);
            let errors = said.lines().skip_while(|line| !line.starts_with("error"));
            return Ok(Outcome::DoesNotCompile(errors.take(SHOWN).collect::<Vec<_>>().join("\n")));
        }
        let mut command = self.cargo_test(suite);
        command.args(["--no-fail-fast", "--"]).args(suite.options()).args(tests);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // A group of its own, so that a run which does not end can be ended with all that it started.
        let started = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.context("cannot run cargo test")?;
        let (said, in_time) = read_within(&mut child, LIMIT)?;
        let status = child.wait()?;
        let failed = failed(&said);
        if !in_time {
            return Ok(Outcome::Endless(failed));
        }
        if passed(&said) + failed.len() == 0 {
            bail!("no test of {suite} ran");
        }
        Ok(if status.success() { Outcome::Green } else { Outcome::Red(failed) })
    }

    fn cargo_test(&self, suite: Suite) -> Command {
        let mut command = Command::new(program());
        command.args(["test", "--quiet"]).args(suite.arguments()).current_dir(&self.tree);
        self.libraries.apply(&mut command);
        // A target of its own: cargo would take two checkouts of one workspace for the same.
        command.env("CARGO_TARGET_DIR", self.tree.with_file_name("target")).env_remove("CARGO_MANIFEST_DIR");
        command
    }
}

/// What it prints, and whether it came to its end in time; else it is ended, with all that it started.
fn read_within(child: &mut Child, limit: Duration) -> Result<(Vec<String>, bool)> {
    let lines = lines_of(child.stdout.take().expect("the output is piped"));
    let deadline = Instant::now() + limit;
    let mut said = vec![];
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => said.push(line),
            Err(RecvTimeoutError::Disconnected) => return Ok((said, true)),
            Err(RecvTimeoutError::Timeout) => {
                let group = format!("-{}", child.id());
                let ended = Command::new("kill").args(["-KILL", "--", &group]).status().context("cannot run kill")?;
                if !ended.success() {
                    bail!("the tests do not end, and cannot be ended");
                }
                return Ok((said, false));
            }
        }
    }
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (told, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if told.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// The failed tests, by the list that each test binary ends with.
fn failed(said: &[String]) -> Vec<String> {
    let mut failed: Vec<String> = vec![];
    let mut listed = false;
    for line in said {
        match line.strip_prefix("    ") {
            _ if line == "failures:" => listed = true,
            Some(name) if listed && !name.contains(char::is_whitespace) => failed.push(name.to_owned()),
            _ if line.is_empty() => {}
            _ => listed = false,
        }
    }
    failed.sort_unstable();
    failed.dedup();
    failed
}

/// How many tests passed, over all binaries.
fn passed(said: &[String]) -> usize {
    let counts =
        said.iter().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". ")?.1.split_once(" passed"));
    counts.filter_map(|(count, _)| count.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_failed_tests_of_all_binaries_are_found_once_each() {
        let said = lines(
            "running 3 tests\n.F.\nfailures:\n\n---- a::one stdout ----\n    not a name\nassertion failed\n\n\
             failures:\n    a::one\n    a::two\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n\
             running 1 test\nfailures:\n    b::three\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored",
        );
        assert_eq!(failed(&said), ["a::one", "a::two", "b::three"]);
        assert_eq!(passed(&said), 1);
    }

    #[test]
    fn a_green_run_has_none() {
        let said = lines("running 2 tests\n..\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured");
        assert_eq!((failed(&said), passed(&said)), (vec![], 2));
    }

    #[test]
    fn a_run_that_does_not_end_is_ended_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 600 & wait"]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (said, in_time) = read_within(&mut child, Duration::from_millis(300)).unwrap();
        assert_eq!((said, in_time), (vec!["begun".to_owned()], false));
        assert!(!child.wait().unwrap().success());
    }
}
