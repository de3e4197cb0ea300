//! What takes long at a start, for whoever waits; it prints nothing.

use std::{fmt, path::PathBuf};

/// What takes long; its text is for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// PostgreSQL is downloaded, which later starts need not do.
    Downloading {
        /// Its version.
        version: &'static str,
        /// About how much, in MB.
        megabytes: u32,
        /// The folder in which it will be.
        to: PathBuf,
    },
    /// Another process downloads it at this moment.
    AwaitingDownload {
        /// Its version.
        version: &'static str,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Downloading { version, megabytes, to } => {
                write!(formatter, "downloading PostgreSQL {version} ({megabytes} MB) to {}, once", to.display())
            }
            Self::AwaitingDownload { version } => {
                write!(formatter, "waiting for another process that downloads PostgreSQL {version}")
            }
        }
    }
}

/// Whoever is told.
pub(super) type Listener<'a> = &'a (dyn Fn(Progress) + Send + Sync);
