//! `cargo xtask mutate`: takes one guard out at a time, in a copy of the sources, and shows which tests notice. Which
//! guards there are is a table of its own; no rule of delivery is known here.

mod guards;
mod report;
mod suites;
mod tree;
mod trial;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::{
    cargo::{Libraries, workspace_root},
    test_integration::Backend,
};
use guards::{GUARDS, Guard};
use report::Row;
use suites::Suite;
use tree::Tree;
use trial::{Outcome, Trial};

/// Exit code when a component could not start: the tests say nothing then.
const NO_COMPONENT: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where Kafka and PostgreSQL come from.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Only the guards whose name contains this; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the guards and stop.
    #[arg(long)]
    list: bool,
    /// Write what was found here, as JSON.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    #[command(flatten)]
    libraries: Libraries,
}

/// Exit code 0: each removal turned tests red. 1: one turned none, or does not compile. 3: a component could not start.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<&Guard> = GUARDS.iter().filter(|guard| arguments.wants(guard)).collect();
    if chosen.is_empty() {
        bail!("no guard has such a name: --list shows them");
    }
    if arguments.list {
        chosen.iter().for_each(|guard| println!("{:32} {}", guard.name, guard.protects));
        return Ok(ExitCode::SUCCESS);
    }
    let root = workspace_root();
    guards::check(&root, &chosen)?;
    let components = arguments.backend.start(arguments.libraries)?;
    if let Some(failed) = components.failed() {
        eprintln!("{failed}");
        return Ok(ExitCode::from(NO_COMPONENT));
    }
    components.describe();
    let mut tree = Tree::copy_of(&root)?;
    let trial =
        Trial { tree: tree.root().to_owned(), variables: components.variables(), libraries: arguments.libraries };
    untouched(&trial, &chosen)?;
    let mut rows = vec![];
    for (number, guard) in chosen.iter().enumerate() {
        let begun = Instant::now();
        println!("{}/{} without {}: {}", number + 1, chosen.len(), guard.name, guard.protects);
        tree.replace(guard)?;
        let outcome = trial.run(guard.suite, guard.tests);
        tree.restore()?;
        let row = Row { guard, outcome: outcome?, seconds: begun.elapsed().as_secs_f64() };
        println!("    {row}");
        rows.push(row);
    }
    drop(components);
    report::write(&root, &rows, arguments.json.as_deref())?;
    let unnoticed = rows.iter().filter(|row| !row.outcome.is_red()).count();
    println!("{} guards taken out, {unnoticed} of them unnoticed", rows.len());
    Ok(if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Arguments {
    fn wants(&self, guard: &Guard) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| guard.name.contains(name.as_str()))
    }
}

/// A red test says something only if it is green with all guards in place.
fn untouched(trial: &Trial, chosen: &[&Guard]) -> Result<()> {
    let mut suites: BTreeMap<Suite, Vec<&str>> = BTreeMap::new();
    for guard in chosen {
        suites.entry(guard.suite).or_default().extend(guard.tests);
    }
    for (suite, mut tests) in suites {
        if chosen.iter().any(|guard| guard.suite == suite && guard.tests.is_empty()) {
            tests.clear();
        }
        tests.sort_unstable();
        tests.dedup();
        println!("with all guards: {suite}");
        match trial.run(suite, &tests)? {
            Outcome::Green => {}
            outcome => bail!("the tests of {suite} are not green with all guards in place: {outcome}"),
        }
    }
    Ok(())
}
