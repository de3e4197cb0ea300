//! The labels by which the containers of a run are found, and by which a later run knows that nobody holds them any
//! more: the run holds a lock on a file, and a lock goes with the process that has it, however that ends.

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// The label that all our containers have.
pub(crate) const KIND_LABEL: &str = "delivery.testbed";
/// Its value in a run: the path of the file that the run has locked.
const LOCK_LABEL: &str = "delivery.testbed.lock";
/// The machine that the path is of: several may share an engine.
const MACHINE_LABEL: &str = "delivery.testbed.machine";
/// Our process, for people.
const PROCESS_LABEL: &str = "delivery.testbed.process";

/// This run. Its lock is held as long as it lives.
#[derive(Debug)]
pub(crate) struct Run {
    lock: NamedTempFile,
    machine: String,
}

impl Run {
    pub(crate) fn begin() -> Result<Self> {
        let lock = tempfile::Builder::new().prefix("testbed-containers.").suffix(".lock").tempfile()?;
        lock.as_file().lock().context("cannot lock a temporary file")?;
        Ok(Self { lock, machine: machine()? })
    }

    pub(crate) fn labels(&self) -> Vec<(String, String)> {
        let path = self.lock.path().display().to_string();
        let process = std::process::id().to_string();
        let labels = [
            (KIND_LABEL, "shared".to_owned()),
            (LOCK_LABEL, path),
            (MACHINE_LABEL, self.machine.clone()),
            (PROCESS_LABEL, process),
        ];
        labels.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// The label that no other run has, as Docker's filter takes it.
    pub(crate) fn own_label(&self) -> String {
        format!("{LOCK_LABEL}={}", self.lock.path().display())
    }
}

/// Whether the run with these labels was one of this machine, and has ended. Its file is then removed.
pub(crate) fn is_left_over(labels: &HashMap<String, String>) -> bool {
    let (Some(path), Some(of)) = (labels.get(LOCK_LABEL), labels.get(MACHINE_LABEL)) else {
        return false;
    };
    let is_ours = machine().is_ok_and(|machine| machine == *of);
    is_ours && is_abandoned(Path::new(path))
}

/// If in doubt (another user's file that we may not read), somebody holds it.
fn is_abandoned(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == ErrorKind::NotFound,
    };
    match file.try_lock() {
        Ok(()) => {
            // One that stays is empty and in the temporary folder.
            fs::remove_file(path).ok();
            true
        }
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

fn machine() -> Result<String> {
    let output = Command::new("uname").arg("-n").output().context("cannot run uname")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(run: &Run) -> HashMap<String, String> {
        run.labels().into_iter().collect()
    }

    #[test]
    fn a_run_that_lives_is_left_alone_and_one_that_was_killed_is_not() {
        let run = Run::begin().unwrap();
        let labels = labels(&run);
        assert!(!is_left_over(&labels));
        // As after a kill: the file stays, the lock goes.
        let (_, path) = run.lock.keep().unwrap();
        assert!(is_left_over(&labels));
        assert!(!path.exists());
        assert!(is_left_over(&labels), "so does a file that somebody has removed");
    }

    #[test]
    fn the_run_of_another_machine_is_left_alone() {
        let mut run = Run::begin().unwrap();
        run.machine += "-other";
        let labels = labels(&run);
        drop(run);
        assert!(!is_left_over(&labels));
        assert!(!is_left_over(&HashMap::from([(KIND_LABEL.to_owned(), "shared".to_owned())])));
    }
}
