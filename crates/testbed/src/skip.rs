//! Says that a test could not run; it never decides that it need not.

use std::{env, fs::OpenOptions, io::Write};

use anyhow::{Context, Result};

/// Variable that names the file of skipped tests; `cargo xtask test-integration` sets it and counts the lines.
pub const SKIP_LOG_VARIABLE: &str = "TEST_SKIP_LOG";

/// Records that the test `name` did not run because of `reason` (one line each), so that the run reports it as
/// skipped and not as passed, which is what a test binary counts. The caller returns right after.
///
/// # Errors
/// When there is no such file to write to: outside of `cargo xtask test-integration` a skip would look like a pass.
pub fn report_skip(name: &str, reason: &str) -> Result<()> {
    let path = env::var_os(SKIP_LOG_VARIABLE).with_context(|| {
        format!("{name} cannot run ({reason}), and {SKIP_LOG_VARIABLE} is not set: run cargo xtask test-integration")
    })?;
    let line = format!("{name}: {}\n", reason.replace('\n', " "));
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut log| log.write_all(line.as_bytes()))
        .with_context(|| format!("cannot record the skip in {}", path.display()))
}
