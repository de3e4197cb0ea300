//! `cargo xtask tidy`: the architecture as checks; the rules are tables in the modules below.

mod dependencies;
mod docs;
mod features;
mod graph;
mod sources;

use std::{fmt, process::ExitCode};

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, MetadataCommand};

use crate::cargo::{program, workspace_root};

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    rule: &'static str,
    /// The chain of dependencies, or the file and what is wrong with it.
    what: String,
    /// What to do.
    advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}\n    {}", self.rule, self.what, self.advice)
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    Ok(if passes()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints each finding; whether there was none.
pub(crate) fn passes() -> Result<bool> {
    let root = workspace_root();
    let metadata = MetadataCommand::new()
        .cargo_path(program())
        .current_dir(&root)
        .features(CargoOpt::AllFeatures)
        .exec()
        .context("cargo metadata failed")?;
    let graph = graph::Graph::of_normal_dependencies(&metadata)?;
    let mut findings = dependencies::check(&graph, dependencies::RULES);
    findings.extend(features::check(&features::requested(&metadata)));
    findings.extend(sources::check_tree(&root)?);
    findings.extend(docs::check_tree(&root)?);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: no findings"),
        count => println!("tidy: {count} findings"),
    }
    Ok(findings.is_empty())
}
