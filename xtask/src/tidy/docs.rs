//! Whether the documents that say what shows a promise name tests and files that exist. What the tests show is not
//! judged.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};

use super::{Finding, sources};

/// Documents that are held to the sources.
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "docs/guarantees.md"];

/// A quoted name of so many words is that of a test; tables, columns and error classes are shorter.
const WORDS_OF_A_TEST: usize = 4;

/// Checks every document below the root of the workspace.
pub(super) fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let sources = sources::read_all(root)?;
    let functions = sources.iter().flat_map(|(_, text)| functions_of(text)).map(str::to_owned).collect();
    let exists = |file: &str| sources.iter().any(|(path, _)| path.ends_with(file));
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).with_context(|| format!("cannot read {document}"))?;
        findings.extend(check(document, &text, &functions, exists));
    }
    Ok(findings)
}

fn check(document: &str, text: &str, functions: &BTreeSet<String>, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let find = |quoted: &str| {
        let (what, advice) = if is_test(quoted) && !is_known(quoted, functions) {
            ("no function of that name", "name the test that shows it now, or write one")
        } else if is_file(quoted) && !exists(quoted) {
            ("no such file", "name the file by its path, or by the end of it")
        } else {
            return None;
        };
        Some(Finding {
            rule: "a document names what exists",
            what: format!("{document} names `{quoted}`, and there is {what}"),
            advice,
        })
    };
    quotes(text).filter_map(find).collect()
}

/// What stands between single backticks, on one line.
fn quotes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The names of all functions that the text of a source file declares.
fn functions_of(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.lines().filter_map(move |line| {
        let (before, after) = line.split_once("fn ")?;
        let name = &after[..after.find(|character| !is_word(character)).unwrap_or(after.len())];
        (!before.contains("//") && !before.ends_with(is_word) && !name.is_empty()).then_some(name)
    })
}

fn is_test(quoted: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    quoted.chars().all(|character| is_plain(character) || "_…".contains(character))
        && quoted.split(['_', '…']).filter(|word| !word.is_empty()).count() >= WORDS_OF_A_TEST
}

/// `…` stands for anything.
fn is_known(quoted: &str, functions: &BTreeSet<String>) -> bool {
    let mut parts = quoted.split('…');
    match (parts.next(), quoted.contains('…')) {
        (Some(start), true) => {
            let parts: Vec<&str> = parts.collect();
            functions.iter().any(|name| name.starts_with(start) && parts.iter().all(|part| name.contains(part)))
        }
        _ => functions.contains(quoted),
    }
}

fn is_file(quoted: &str) -> bool {
    quoted.contains('/') && quoted.ends_with(".rs") && !quoted.contains(['{', '*', '…', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let functions =
            functions_of("    async fn a_second_delivery_changes_nothing() -> Result<()> {\nfn charge_it() {\n");
        let functions = functions.map(str::to_owned).collect();
        let exists = |file: &str| file == "crates/a/src/lib.rs";
        check("docs/a.md", text, &functions, exists).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_test_that_exists_may_be_named() {
        assert_eq!(found("shown by `a_second_delivery_changes_nothing`, `a_second_…_changes_…`."), [""; 0]);
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        for gone in ["a_second_delivery_changes_something", "a_third_…_changes_nothing"] {
            let what = format!("docs/a.md names `{gone}`, and there is no function of that name");
            assert_eq!(found(&format!("| a promise | `a_second_delivery_changes_nothing`, `{gone}` |")), [what]);
        }
    }

    #[test]
    fn other_quotes_are_no_tests() {
        for other in ["order_already_charged", "cargo xtask chaos", "PAYMENT_KEY_LIFETIME", "a/b_c_d_e/", "Claimed<E>"]
        {
            assert_eq!(found(&format!("see `{other}`")), [""; 0], "{other}");
        }
        assert_eq!(found("a_name_that_is_not_quoted"), [""; 0]);
    }

    #[test]
    fn a_file_that_does_not_exist_is_found() {
        assert_eq!(found("`crates/a/src/lib.rs`, `a/src/{b,c}.rs`, `lib.rs`"), [""; 0]);
        assert_eq!(found("`a/src/gone.rs`"), ["docs/a.md names `a/src/gone.rs`, and there is no such file"]);
    }

    #[test]
    fn a_function_is_known_by_its_declaration_only() {
        let text = "// fn in_a_comment() {}\npub(crate) async fn one<T>() {}\nlet two = my_fn three;\n    fn four()\n";
        assert_eq!(functions_of(text).collect::<Vec<_>>(), ["one", "four"]);
    }
}
