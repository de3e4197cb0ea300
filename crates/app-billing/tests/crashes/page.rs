//! The matrix as a page: what came out of a run, and what the guarantees show of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path as File, PathBuf};

use anyhow::{Context, Result, ensure};
use core_delivery::crash::CrashPoint;

use crate::matrix::{Cell, Path, cell};
use crate::trial::{Armed, Trial};

const GUARANTEES: &str = "docs/guarantees.md";
const WRITTEN: &str = "target/crash-matrix.md";
const BEGIN: &str = "<!-- The matrix of tests/crashes, begin: `target/crash-matrix.md` after a run of it. -->\n";
const END: &str = "<!-- The matrix of tests/crashes, end. -->\n";

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Page {
    outcomes: BTreeMap<(Path, CrashPoint), bool>,
    trials: usize,
    failed: Vec<String>,
}

impl Page {
    pub(crate) fn add(&mut self, trial: Trial, passed: bool) {
        self.trials += 1;
        if !passed {
            self.failed.push(trial.to_string());
        }
        let points = match trial.armed {
            Armed::Fatal(point, _) => vec![point],
            Armed::Harmless(points) => points,
        };
        for point in points {
            *self.outcomes.entry((trial.path, point)).or_insert(true) &= passed;
        }
    }

    pub(crate) fn trials(&self) -> usize {
        self.trials
    }

    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Below the workspace's target folder.
    pub(crate) fn write(&self) -> Result<()> {
        let text = table(|path, point| self.outcomes.get(&(path, point)).copied());
        let file = root().join(WRITTEN);
        fs::create_dir_all(file.parent().expect("a file is in a folder"))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Whether the guarantees have the table, as it is when everything passes.
pub(crate) fn is_in_the_guarantees() -> Result<()> {
    let page = fs::read_to_string(root().join(GUARANTEES)).with_context(|| format!("cannot read {GUARANTEES}"))?;
    let shown = page.split_once(BEGIN).and_then(|(_, rest)| Some(rest.split_once(END)?.0));
    let shown = shown.with_context(|| format!("{GUARANTEES} has no matrix between these lines:\n{BEGIN}{END}"))?;
    let tried = table(|_, _| Some(true));
    ensure!(shown == tried, "{GUARANTEES} shows another matrix than is tried; between its two lines belongs\n{tried}");
    Ok(())
}

fn table(outcome: impl Fn(Path, CrashPoint) -> Option<bool>) -> String {
    let mut text = "| the process ends at |".to_owned();
    for path in Path::ALL {
        write!(text, " {} |", path.name()).expect("a String takes every write");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(Path::ALL.len()));
    for &point in CrashPoint::ALL {
        write!(text, "\n| `{}` {} |", point.name(), point.meaning()).expect("a String takes every write");
        for path in Path::ALL {
            let word = match (outcome(path, point), cell(path, point)) {
                (_, Cell::AsFresh) => "as fresh",
                (None, _) => "not tried",
                (Some(false), _) => "FAILED",
                (Some(true), Cell::Tried(_)) => "passed",
                (Some(true), Cell::Absent(_)) => "–",
            };
            write!(text, " {word} |").expect("a String takes every write");
        }
    }
    text.push('\n');
    text
}

fn root() -> PathBuf {
    let root = File::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("a crate is two folders below the root").to_owned()
}
