//! Who depends on whom, as plain names; it knows no rule.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata};

/// Crates and their direct dependencies.
#[derive(Debug, Default)]
pub(super) struct Graph {
    crates: BTreeMap<String, Crate>,
}

/// One crate. In the graph it goes by its name, or by `name@version` where several versions are in use.
#[derive(Debug, Default)]
struct Crate {
    is_member: bool,
    dependencies: BTreeSet<String>,
}

impl Graph {
    /// What is built into the product with every feature on: normal and build dependencies, for all platforms.
    pub(super) fn of_normal_dependencies(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo metadata has no resolved graph")?;
        let mut versions = BTreeMap::new();
        for package in &metadata.packages {
            *versions.entry(package.name.as_str()).or_insert(0) += 1;
        }
        let names: BTreeMap<_, _> = metadata
            .packages
            .iter()
            .map(|package| match versions[package.name.as_str()] {
                1 => (&package.id, package.name.to_string()),
                _ => (&package.id, format!("{}@{}", package.name, package.version)),
            })
            .collect();
        let mut graph = Self::default();
        for node in &resolve.nodes {
            let is_built = |kind: &DependencyKind| *kind != DependencyKind::Development;
            let dependencies = node
                .deps
                .iter()
                .filter(|dependency| dependency.dep_kinds.iter().any(|info| is_built(&info.kind)))
                .map(|dependency| names[&dependency.pkg].clone());
            graph.insert(&names[&node.id], metadata.workspace_members.contains(&node.id), dependencies.collect());
        }
        Ok(graph)
    }

    pub(super) fn insert(&mut self, name: &str, is_member: bool, dependencies: BTreeSet<String>) {
        self.crates.insert(name.to_owned(), Crate { is_member, dependencies });
    }

    /// The crates of this workspace.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.crates.iter().filter(|(_, entry)| entry.is_member).map(|(name, _)| name.as_str())
    }

    pub(super) fn is_member(&self, name: &str) -> bool {
        self.crates.get(name).is_some_and(|entry| entry.is_member)
    }

    /// The shortest chain from `from` to each crate that `is_target`. It does not look behind a target: what that one
    /// brings along is its own matter.
    pub(super) fn chains_to(&self, from: &str, is_target: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
        let mut chains = Vec::new();
        let mut seen = BTreeSet::from([from.to_owned()]);
        let mut queue = VecDeque::from([vec![from.to_owned()]]);
        while let Some(chain) = queue.pop_front() {
            let last = chain.last().expect("a chain begins with its crate");
            for next in self.crates.get(last).iter().flat_map(|entry| &entry.dependencies) {
                if !seen.insert(next.clone()) {
                    continue;
                }
                let longer = [chain.as_slice(), std::slice::from_ref(next)].concat();
                if is_target(next) { chains.push(longer) } else { queue.push_back(longer) }
            }
        }
        chains
    }
}
