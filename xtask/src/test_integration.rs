//! `cargo xtask test-integration`: all tests on real components, and one line that sums them up; no test lives here.

mod backend;
mod components;
mod containers;
mod embedded;
mod holder;
mod skips;
mod tally;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::FalseyValueParser};
use testbed::SKIP_LOG_VARIABLE;

use crate::cargo::{Libraries, whole_workspace};
pub(crate) use backend::Backend;
use components::{Components, Failure};
use skips::{Gap, Skip};
use tally::Tally;

/// Exit code when a component could not start: the tests say nothing then.
const NO_COMPONENT: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where Kafka and PostgreSQL come from.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Run only the tests whose name contains this.
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// When a component cannot start, still run the tests: those that need it fail, and the exit code stays 3.
    #[arg(long)]
    keep_going: bool,
    /// Fail when a test was skipped.
    #[arg(long, env = "TEST_DENY_SKIPS", value_parser = FalseyValueParser::new())]
    deny_skips: bool,
    #[command(flatten)]
    libraries: Libraries,
}

impl Arguments {
    /// What `cargo xtask ci` runs.
    pub(crate) fn for_ci(backend: Backend, libraries: Libraries) -> Self {
        Self { backend, filter: None, keep_going: false, deny_skips: true, libraries }
    }
}

/// Exit code 0: every test passed. 1: one failed, none ran, or one was skipped where that is denied. 3: a component
/// could not start.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let begun = Instant::now();
    let components = arguments.backend.start(arguments.libraries)?;
    for Failure { component, error } in components.failures() {
        eprintln!("{component} could not start: {error:#}");
    }
    let is_whole = components.failures().is_empty();
    if !is_whole && !arguments.keep_going {
        if arguments.backend == Backend::Docker {
            eprintln!("--backend local does without Docker");
        }
        return Ok(ExitCode::from(NO_COMPONENT));
    }
    components.describe();
    let left_out = left_out(arguments, components.gaps())?;
    let skip_log = tempfile::NamedTempFile::new()?;
    let (mut tally, cargo_succeeded) = run_tests(arguments, &components, &left_out, skip_log.path())?;
    drop(components);

    for Skip { test, reason } in &left_out {
        println!("skipped: {test}: {reason}");
        tally.add_left_out();
    }
    for skip in fs::read_to_string(skip_log.path())?.lines() {
        println!("skipped: {skip}");
        tally.add_skip(skip);
    }
    if !cargo_succeeded && tally.failed == 0 {
        println!("cargo test failed, though no test did (a target did not compile, or a test process died): see above");
        tally.failed += 1;
    }
    if arguments.filter.is_none() && tally.filtered() != tally.left_out() {
        println!("{} tests were left out, not the {} that are skipped", tally.filtered(), tally.left_out());
        tally.failed += 1;
    }
    let is_empty = tally.ran() == 0;
    if is_empty {
        println!("no test ran");
    }
    let denied = arguments.deny_skips && tally.skipped() > 0;
    if denied {
        println!("a skipped test fails this run");
    }
    println!("took {:.1} s", begun.elapsed().as_secs_f32());
    println!("{tally}");
    Ok(if !is_whole {
        ExitCode::from(NO_COMPONENT)
    } else if tally.failed > 0 || is_empty || denied {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The tests that do not run because of these gaps. They are compiled and listed first: a gap that names no test, or
/// would hide another one, is an error.
fn left_out(arguments: &Arguments, gaps: &'static [Gap]) -> Result<Vec<Skip>> {
    if gaps.is_empty() {
        return Ok(Vec::new());
    }
    let mut list = whole_workspace("test", arguments.libraries);
    // Of doctests, whose names are paths, none is ever left out.
    let listed = list.args(["--quiet", "--tests", "--", "--list"]).stderr(Stdio::inherit()).output();
    let listed = listed.context("cannot run cargo test")?;
    if !listed.status.success() {
        bail!("the tests cannot be listed");
    }
    let names = skips::names(&String::from_utf8_lossy(&listed.stdout));
    skips::left_out(gaps, &names, arguments.filter.as_deref())
}

/// Runs `cargo test` and passes its output on as it comes. Returns the sum, and whether cargo succeeded.
fn run_tests(
    arguments: &Arguments,
    components: &Components,
    left_out: &[Skip],
    skip_log: &Path,
) -> Result<(Tally, bool)> {
    let mut command = whole_workspace("test", arguments.libraries);
    command
        .arg("--no-fail-fast")
        .args(&arguments.filter)
        .envs(components.variables())
        .env(SKIP_LOG_VARIABLE, skip_log)
        .stdout(Stdio::piped());
    if !left_out.is_empty() {
        command.arg("--").args(left_out.iter().flat_map(|skip| ["--skip", skip.test]));
    }
    let mut child = command.spawn().context("cannot run cargo test")?;
    let tally = pass_on(&mut child)?;
    let status = child.wait()?;
    Ok((tally, status.success()))
}

fn pass_on(child: &mut Child) -> Result<Tally> {
    let mut output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut tally = Tally::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let mut ours = io::stdout().lock();
        ours.write_all(&line)?;
        ours.flush()?;
        tally.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(tally)
}
