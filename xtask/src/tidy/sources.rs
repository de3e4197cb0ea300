//! The shape of the source files, read as text; what depends on what is checked elsewhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Finding;

/// Folders with sources below `crates/<name>` and below the root.
const CRATE_FOLDERS: &[&str] = &["src", "tests"];
const ROOT_FOLDERS: &[&str] = &["xtask/src"];

/// The most lines that a file may have, its tests aside.
const MOST_LINES: usize = 500;

/// Crates of which only [`COMPOSITION`] names more than one.
const ADAPTERS: &[&str] = &["adapters_http", "adapters_kafka", "adapters_tokio", "infra_postgres", "sandbox"];
const COMPOSITION: &str = "compose.rs";

/// Checks every source file below the root of the workspace.
pub(super) fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (path, text) in read_all(root)? {
        findings.extend(check_file(&path, &text));
    }
    Ok(findings)
}

/// Every source file, by its path below the root of the workspace, with its text.
pub(super) fn read_all(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("there is no folder crates")? {
        let folder = entry?.path();
        for name in CRATE_FOLDERS {
            collect(&folder.join(name), &mut files)?;
        }
    }
    for name in ROOT_FOLDERS {
        collect(&root.join(name), &mut files)?;
    }
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok((file.strip_prefix(root).unwrap_or(&file).to_owned(), text))
    };
    files.into_iter().map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Checks one file; `path` is relative to the root of the workspace.
fn check_file(path: &Path, text: &str) -> Vec<Finding> {
    let checks = [begins_with_its_purpose, is_short, names_one_adapter];
    checks.iter().filter_map(|check| check(path, text)).collect()
}

fn begins_with_its_purpose(path: &Path, text: &str) -> Option<Finding> {
    (!text.starts_with("//!")).then(|| Finding {
        rule: "a file says what it is for",
        what: format!("{} does not begin with //!", path.display()),
        advice: "begin it with a //! sentence: what it is for, and what must never be in it",
    })
}

fn is_short(path: &Path, text: &str) -> Option<Finding> {
    let lines = lines_without_tests(text);
    (!is_test(path) && lines > MOST_LINES).then(|| Finding {
        rule: "a file holds one idea",
        what: format!("{} has {lines} lines, tests aside; the most is {MOST_LINES}", path.display()),
        advice: "split it by idea, not by size",
    })
}

fn names_one_adapter(path: &Path, text: &str) -> Option<Finding> {
    let is_application =
        path.starts_with("crates") && path.iter().nth(1).is_some_and(|name| name.to_string_lossy().starts_with("app-"));
    if !is_application || is_test(path) || path.ends_with(COMPOSITION) {
        return None;
    }
    let named: Vec<&str> = ADAPTERS.iter().copied().filter(|adapter| names_crate(text, adapter)).collect();
    (named.len() > 1).then(|| Finding {
        rule: "only compose.rs knows all adapters",
        what: format!("{} names {}", path.display(), named.join(", ")),
        advice: "take what it needs as a port of the core, and let compose.rs hand it in",
    })
}

fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// Lines up to the test module, which is the last item of a file.
fn lines_without_tests(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

/// Whether the code has a path into the crate (`name::`), or imports it (`use name;`, `use name as`).
fn names_crate(text: &str, name: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            // `crate::name::` is a module of our own, `::name::` the crate.
            let is_inner = before.strip_suffix("::").is_some_and(|outer| outer.ends_with(is_word));
            let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
            let is_path = after.starts_with("::");
            let is_import =
                before.trim_start().starts_with("use ") && (after.starts_with(';') || after.starts_with(" as "));
            is_whole && !is_inner && (is_path || is_import)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_broken(path: &str, text: &str) -> Vec<&'static str> {
        check_file(Path::new(path), text).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_file_without_a_purpose_is_found() {
        let rule = "a file says what it is for";
        assert_eq!(rules_broken("crates/x/src/a.rs", "fn main() {}\n"), [rule]);
        assert_eq!(rules_broken("crates/x/src/a.rs", "//! What it is for.\n"), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found_unless_its_tests_make_it_long() {
        let code = |lines| format!("//! Long.\n{}", "fn a() {}\n".repeat(lines));
        let rule = "a file holds one idea";
        assert_eq!(rules_broken("crates/x/src/a.rs", &code(500)), [rule]);
        assert_eq!(rules_broken("crates/x/src/a.rs", &code(499)), [""; 0]);
        assert_eq!(rules_broken("crates/x/tests/it/a.rs", &code(500)), [""; 0]);
        let tested = format!("//! Tested.\n#[cfg(test)]\n{}", code(500));
        assert_eq!(rules_broken("crates/x/src/a.rs", &tested), [""; 0]);
    }

    #[test]
    fn a_second_adapter_outside_of_compose_is_found() {
        let both = "//! Both.\nuse infra_postgres::PgUnit;\nfn a() { adapters_kafka::start() }\n";
        let rule = "only compose.rs knows all adapters";
        assert_eq!(rules_broken("crates/app-billing/src/main.rs", both), [rule]);
        assert_eq!(rules_broken("crates/app-billing/src/compose.rs", both), [""; 0]);
        assert_eq!(rules_broken("crates/app-billing/tests/it/main.rs", both), [""; 0]);
        assert_eq!(rules_broken("crates/testbed/src/a.rs", both), [""; 0]);
    }

    #[test]
    fn only_a_path_into_a_crate_names_it() {
        for naming in ["use sandbox::Provider;", "use sandbox;", "use sandbox as s;", "::sandbox::start();"] {
            assert!(names_crate(naming, "sandbox"), "{naming}");
        }
        for other in [
            "// sandbox::start() would be wrong here.",
            "use crate::sandbox::start;",
            "let sandbox = 1;",
            "my_sandbox::start();",
            "sandboxes::start();",
        ] {
            assert!(!names_crate(other, "sandbox"), "{other}");
        }
    }
}
