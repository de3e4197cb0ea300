//! Why there is no private PostgreSQL, by what can be done about it.

use std::{io, path::PathBuf};

use thiserror::Error;

#[cfg(feature = "fetch")]
use super::fetch::FetchError;
use super::installation::{BINARIES_VARIABLE, OLDEST, UNPRIVILEGED};
use crate::supervised::ServerError;

/// Why there is no server.
#[derive(Debug, Error)]
pub enum PostgresError {
    /// There is no server to run. Install one, or name the folder of one.
    #[error(
        "no PostgreSQL server ({OLDEST} or newer) is installed: install one (Debian, Ubuntu: apt-get install postgresql; \
         macOS: brew install postgresql@17), or point {BINARIES_VARIABLE} to the folder with initdb and postgres"
    )]
    NotInstalled,
    /// The folder that was named has no server that we can run. Name another one.
    #[error("{} has no initdb and postgres of PostgreSQL {OLDEST} or newer", folder.display())]
    NoServerIn {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no server to run, and none could be downloaded. Install one, or try again with a network.
    #[cfg(feature = "fetch")]
    #[error(
        "no PostgreSQL server ({OLDEST} or newer) is installed, and PostgreSQL {version} could not be downloaded from \
         {from} to {}: install one (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17), or \
         point {BINARIES_VARIABLE} to the folder with initdb and postgres, or set DATABASE_URL to a server of yours",
        to.display()
    )]
    NotFetched {
        /// Which version it should have been.
        version: &'static str,
        /// Where it was asked for.
        from: &'static str,
        /// The folder where it should be now.
        to: PathBuf,
        /// What went wrong.
        #[source]
        source: FetchError,
    },
    /// We are root, as which PostgreSQL refuses to run, and there is no other account. Run as another user.
    #[error("PostgreSQL refuses to run as root, and there is no account {UNPRIVILEGED}")]
    NoAccount,
    /// The new cluster could not be made; what initdb said has the reason.
    #[error("initdb failed: {said}")]
    NoCluster {
        /// Its error output.
        said: String,
    },
    /// The installation cannot copy a running server. Install the server's own package.
    #[error(
        "{} has no {program}, with which a running server is copied: Debian's postgresql-15 has it; point \
         {BINARIES_VARIABLE} to the folder of an installation that has it",
        folder.display()
    )]
    NoCopying {
        /// What is missing.
        program: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The running server could not be copied; what the program said has the reason.
    #[error("the running server could not be copied: {said}")]
    NotCopied {
        /// Its error output.
        said: String,
    },
    /// The server did not get ready, or did not end.
    #[error("the private PostgreSQL failed")]
    Server(#[from] ServerError),
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What could not be done.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Says what could not be done.
pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PostgresError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Io { what: what(), source })
    }
}
