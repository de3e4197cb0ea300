//! What this machine lets us do to it. A fault that cannot be made here is left out, and said at the start.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Result, bail};

use super::{
    Membership,
    faults::{Fault, Scenario},
};

/// Where libfaketime is: Debian and its kin, by architecture, and what is built by hand.
const FAKETIME: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/libfaketime/libfaketimeMT.so.1",
];
/// Set by us for the process that has mounts of its own.
const OWN_MOUNTS: &str = "CHAOS_OWN_MOUNTS";

/// What can be done.
#[derive(Debug)]
pub(super) struct Abilities {
    /// The library that gives a process a clock of its own.
    pub(super) faketime: Option<PathBuf>,
    has_own_mounts: bool,
    membership: Membership,
}

impl Abilities {
    pub(super) fn find(membership: Membership) -> Self {
        Self {
            faketime: FAKETIME.iter().map(PathBuf::from).find(|library| library.is_file()),
            has_own_mounts: std::env::var_os(OWN_MOUNTS).is_some(),
            membership,
        }
    }

    /// The faults of a scenario that can be made here; those that cannot are printed.
    ///
    /// # Errors
    /// When there are none.
    pub(super) fn faults(&self, scenario: Scenario) -> Result<Vec<Fault>> {
        let mut able = scenario.faults();
        able.retain(|fault| match self.obstacle(*fault) {
            Some(obstacle) => {
                println!("chaos: LEFT OUT: {}: {obstacle}", fault.as_str());
                false
            }
            None => true,
        });
        if able.is_empty() {
            bail!("nothing of this scenario can be done here");
        }
        Ok(able)
    }

    fn obstacle(&self, fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::ClockJump if self.faketime.is_none() => {
                Some("libfaketime is not installed (Debian: apt-get install faketime)")
            }
            Fault::DiskFull if !self.has_own_mounts => Some("a small disk needs root, unshare and mount"),
            Fault::Twin if self.membership != Membership::Static => Some("only with --membership static"),
            _ => None,
        }
    }
}

/// Becomes a process with mounts of its own, if this machine lets us, so that a disk that we mount goes with the last of
/// our processes, however they end. Otherwise nothing happens.
pub(crate) fn take_own_mounts() {
    use std::os::unix::process::CommandExt;

    let is_allowed = || {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
        probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if std::env::var_os(OWN_MOUNTS).is_some() || !Path::new("/mnt").is_dir() || !is_allowed() {
        return;
    }
    let Ok(ours) = std::env::current_exe() else { return };
    let error = Command::new("unshare")
        .args(["--mount", "--propagation=private"])
        .arg(ours)
        .args(std::env::args_os().skip(1))
        .env(OWN_MOUNTS, "1")
        .exec();
    eprintln!("chaos: no mounts of our own: {error}");
}
