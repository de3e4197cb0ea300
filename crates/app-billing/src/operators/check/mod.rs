//! The check of everything that the service depends on: each thing is reached and used, and a finding comes with what
//! to do about it. It changes nothing.

pub mod compose;
pub mod kafka;
pub mod postgres;
pub mod provider;

use serde_json::{Value, json};

use super::table::table;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub name: String,
    /// How it is.
    pub outcome: Outcome,
}

/// How a checked thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it must be.
    Fine(String),
    /// Reached, and not as it must be.
    Finding {
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// Not reached.
    Unreachable {
        /// What was tried and what happened.
        what: String,
        /// What to do.
        fix: String,
    },
}

impl Item {
    /// As it must be.
    pub fn fine(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Fine(what.into()) }
    }

    /// Not as it must be.
    pub fn finding(name: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Finding { what: what.into(), fix: fix.into() } }
    }

    /// Not reached.
    pub fn unreachable(name: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Unreachable { what: what.into(), fix: fix.into() } }
    }
}

/// What the whole check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is fine.
    Clean,
    /// Something is not as it must be.
    Findings(usize),
    /// Something was not reached.
    Unreachable(usize),
}

/// What the items say together. What was not reached weighs most: nobody knows what would be found there.
pub fn verdict(items: &[Item]) -> Verdict {
    let count = |is: fn(&Outcome) -> bool| items.iter().filter(|item| is(&item.outcome)).count();
    let unreachable = count(|outcome| matches!(outcome, Outcome::Unreachable { .. }));
    let findings = count(|outcome| matches!(outcome, Outcome::Finding { .. }));
    match (unreachable, findings) {
        (0, 0) => Verdict::Clean,
        (0, findings) => Verdict::Findings(findings),
        (unreachable, _) => Verdict::Unreachable(unreachable),
    }
}

/// For people: a row each, and what to do below.
pub fn to_text(items: &[Item]) -> String {
    let row = |item: &Item| {
        let (state, what, _) = parts(&item.outcome);
        vec![state.to_owned(), item.name.clone(), what.to_owned()]
    };
    let mut text = table(&["STATE", "WHAT", "DETAIL"], &items.iter().map(row).collect::<Vec<_>>());
    for item in items {
        if let (_, _, Some(fix)) = parts(&item.outcome) {
            text.push_str(&format!("{}: {fix}\n", item.name));
        }
    }
    text
}

/// For scripts.
pub fn to_json(items: &[Item]) -> Value {
    let entry = |item: &Item| {
        let (state, what, fix) = parts(&item.outcome);
        json!({"name": item.name, "state": state, "detail": what, "fix": fix})
    };
    let entries: Value = items.iter().map(entry).collect();
    json!({"clean": verdict(items) == Verdict::Clean, "items": entries})
}

fn parts(outcome: &Outcome) -> (&'static str, &str, Option<&str>) {
    match outcome {
        Outcome::Fine(what) => ("ok", what, None),
        Outcome::Finding { what, fix } => ("finding", what, Some(fix)),
        Outcome::Unreachable { what, fix } => ("unreachable", what, Some(fix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_reached_weighs_more_than_a_finding() {
        let (fine, finding) = (Item::fine("a", "is there"), Item::finding("b", "is wrong", "mend it"));
        let unreachable = Item::unreachable("c", "is silent", "start it");
        assert_eq!(verdict(std::slice::from_ref(&fine)), Verdict::Clean);
        assert_eq!(verdict(&[fine.clone(), finding.clone()]), Verdict::Findings(1));
        assert_eq!(verdict(&[finding.clone(), unreachable.clone()]), Verdict::Unreachable(1));
        let text = to_text(&[fine, finding, unreachable]);
        assert!(
            text.contains("finding      b     is wrong\n") && text.ends_with("b: mend it\nc: start it\n"),
            "{text}"
        );
    }
}
