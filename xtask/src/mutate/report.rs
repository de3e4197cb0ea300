//! What is written about the guards that were taken out; nothing is tried here.

use std::{fmt, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::json;

use super::{guards::Guard, trial::Outcome};

/// How many tests a line of the table names.
const NAMED: usize = 3;

/// A guard, and what its removal did.
pub(super) struct Row<'a> {
    pub(super) guard: &'a Guard,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (outcome, seconds) = (&self.outcome, self.seconds);
        match outcome {
            Outcome::Green => write!(formatter, "UNNOTICED: no test of {} fails ({seconds:.0} s)", self.guard.suite),
            outcome => write!(formatter, "{outcome} ({seconds:.0} s)"),
        }
    }
}

/// Writes the table to `target/mutations.md`, and the JSON where it is wanted.
pub(super) fn write(root: &Path, rows: &[Row<'_>], path: Option<&Path>) -> Result<()> {
    let table = root.join("target/mutations.md");
    fs::write(&table, markdown(rows)).with_context(|| format!("cannot write {}", table.display()))?;
    println!("the table: {}", table.display());
    if let Some(path) = path {
        fs::write(path, format!("{:#}\n", to_json(rows)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn markdown(rows: &[Row<'_>]) -> String {
    let mut table = "| guard | without it | tests that turn red |\n|---|---|---|\n".to_owned();
    for Row { guard, outcome, .. } in rows {
        let (name, protects) = (guard.name, guard.protects);
        table.push_str(&format!("| `{name}` | {protects} | {} |\n", in_short(outcome)));
    }
    table
}

fn in_short(outcome: &Outcome) -> String {
    // Of a path the last part is the test's name.
    let names = outcome.failed().iter().map(|name| format!("`{}`", name.rsplit("::").next().unwrap_or(name)));
    let mut named: Vec<String> = names.clone().take(NAMED).collect();
    match names.len().saturating_sub(NAMED) {
        0 => {}
        more => named.push(format!("{more} more")),
    }
    match outcome {
        Outcome::Green => "none".to_owned(),
        Outcome::DoesNotCompile(_) => "does not compile".to_owned(),
        Outcome::Endless(_) => {
            named.push("the run does not end".to_owned());
            named.join(", ")
        }
        Outcome::Red(failed) if failed.is_empty() => "the process of the tests ends".to_owned(),
        Outcome::Red(_) => named.join(", "),
    }
}

fn to_json(rows: &[Row<'_>]) -> serde_json::Value {
    let guards = rows.iter().map(|Row { guard, outcome, seconds }| {
        json!({
            "name": guard.name,
            "without": guard.protects,
            "file": guard.file,
            "suite": guard.suite.to_string(),
            "outcome": match outcome {
                Outcome::Green => "unnoticed",
                Outcome::Red(_) => "red",
                Outcome::Endless(_) => "endless",
                Outcome::DoesNotCompile(_) => "does_not_compile",
            },
            "failed": outcome.failed(),
            "seconds": seconds,
        })
    });
    let unnoticed = rows.iter().filter(|row| !row.outcome.is_red()).count();
    json!({ "guards": guards.collect::<Vec<_>>(), "unnoticed": unnoticed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::guards::GUARDS;

    fn row(outcome: Outcome) -> Row<'static> {
        Row { guard: &GUARDS[0], outcome, seconds: 1.0 }
    }

    #[test]
    fn a_line_names_a_few_tests_and_counts_the_others() {
        let failed = ["a::one", "a::two", "b::three", "b::four", "five"].map(str::to_owned).to_vec();
        assert_eq!(in_short(&Outcome::Red(failed)), "`one`, `two`, `three`, 2 more");
        assert_eq!(in_short(&Outcome::Endless(vec!["a::one".into()])), "`one`, the run does not end");
        assert_eq!(in_short(&Outcome::Green), "none");
    }

    #[test]
    fn only_red_is_noticed() {
        let rows = [row(Outcome::Green), row(Outcome::DoesNotCompile(String::new())), row(Outcome::Red(vec![]))];
        assert_eq!(to_json(&rows)["unnoticed"], 2);
    }
}
