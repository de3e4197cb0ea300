//! Sums up what test binaries print; it runs none.

use std::{collections::BTreeSet, fmt};

/// How many tests did what.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// As the test binaries count: a test that reported a skip has passed for them.
    returned: u64,
    ignored: u64,
    /// What libtest was told to leave out, by its own count.
    filtered: u64,
    /// What is not run because the backend cannot do it.
    left_out: u64,
    pub(super) failed: u64,
    /// The tests that reported that they could not run.
    reported: BTreeSet<String>,
}

impl Tally {
    /// Adds the counts of a line `test result: ok. 1 passed; 0 failed; 2 ignored; …`; any other line changes nothing.
    pub(super) fn add_line(&mut self, line: &str) {
        let line = without_colours(line);
        let Some((_verdict, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            match (number, words.next()) {
                (Some(number), Some("passed")) => self.returned += number,
                (Some(number), Some("failed")) => self.failed += number,
                (Some(number), Some("ignored")) => self.ignored += number,
                (Some(number), Some("filtered")) => self.filtered += number,
                _ => {}
            }
        }
    }

    /// Adds a line `name: reason` of the skip log; a test that reports twice is skipped once.
    pub(super) fn add_skip(&mut self, line: &str) {
        let name = line.split_once(": ").map_or(line, |(name, _)| name);
        self.reported.insert(name.to_owned());
    }

    /// Adds a test that was left out.
    pub(super) fn add_left_out(&mut self) {
        self.left_out += 1;
    }

    pub(super) fn filtered(&self) -> u64 {
        self.filtered
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn skipped(&self) -> u64 {
        self.ignored + self.left_out + self.reported()
    }

    /// Tests that ran to an end, good or bad.
    pub(super) fn ran(&self) -> u64 {
        self.passed() + self.failed
    }

    fn passed(&self) -> u64 {
        self.returned.saturating_sub(self.reported())
    }

    fn reported(&self) -> u64 {
        self.reported.len() as u64
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = (self.passed(), self.failed, self.skipped());
        write!(formatter, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// The line without escape sequences such as `ESC[32m`.
fn without_colours(line: &str) -> String {
    let mut pieces = line.split('\x1b');
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once('m').map_or(piece, |(_, text)| text));
    std::iter::once(first).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.add_line(line);
        }
        tally
    }

    #[test]
    fn the_lines_of_all_targets_are_summed() {
        let sum = tally(&[
            "test result: ok. 11 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.07s\n",
            "running 2 tests\n",
            "test result: FAILED. 2 passed; 3 failed; 4 ignored; 0 measured; 0 filtered out; finished in 1s\n",
        ]);
        assert_eq!(sum.to_string(), "13 passed, 3 failed, 5 skipped");
    }

    #[test]
    fn colours_do_not_hide_a_result() {
        let sum = tally(&["test result: \x1b[32mok\x1b[0m. 2 passed; 1 failed; 0 ignored; 0 measured\n"]);
        assert_eq!(sum.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn what_only_looks_like_a_result_is_not_counted() {
        let sum = tally(&["test test_result: ok. 5 passed; ... ok", "note: test result: ok. 5 passed;"]);
        assert_eq!(sum.to_string(), "0 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_test_that_was_left_out_is_skipped_and_was_never_a_pass() {
        let mut sum =
            tally(&["test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 1s\n"]);
        sum.add_left_out();
        assert_eq!((sum.to_string().as_str(), sum.filtered()), ("3 passed, 0 failed, 1 skipped", 1));
    }

    #[test]
    fn a_reported_skip_is_no_pass() {
        let mut sum = tally(&["test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n"]);
        sum.add_skip("tls: no openssl: not here");
        sum.add_skip("tls: a second time");
        assert_eq!(sum.to_string(), "2 passed, 0 failed, 2 skipped");
    }
}
