//! How a private PostgreSQL runs, as lines of its configuration; it writes no file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A small server; `max_connections` is more than one service takes. A line that comes later wins.
const SETTINGS: &[(&str, &str)] = &[("max_connections", "60"), ("shared_buffers", "32MB")];

/// How the server runs.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// A commit that was confirmed survives a crash of the machine (`fsync`, `synchronous_commit`, `full_page_writes`),
    /// as in production; without it commits are faster and only a crash of the server alone is survived.
    pub durable: bool,
    /// Lines of `postgresql.conf`, name to value. They win over the ones set by `durable` and over the small defaults.
    pub settings: BTreeMap<String, String>,
    /// Where its programs come from.
    pub binaries: Binaries,
}

impl Default for PostgresOptions {
    /// Durable and small, with what is found.
    fn default() -> Self {
        Self { durable: true, settings: BTreeMap::new(), binaries: Binaries::Found }
    }
}

/// Where the programs of the server come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binaries {
    /// Those of `SANDBOX_PG_BIN`, else the newest that is installed outside of the `PATH`, else those on the `PATH`,
    /// else (feature `fetch`) those of the cache folder, downloaded at the first start.
    Found,
    /// Those of this folder.
    In(PathBuf),
    /// Those of this cache folder, downloaded if they are not there; what is installed is not looked at.
    #[cfg(feature = "fetch")]
    Fetched {
        /// Which any account must be able to enter if we are root.
        cache: PathBuf,
    },
}

impl PostgresOptions {
    /// Our lines of `postgresql.conf`: the last line of a name wins.
    pub(super) fn configuration(&self, sockets: &Path) -> String {
        let durability = if self.durable { "on" } else { "off" };
        let mut lines = format!("listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n", sockets.display());
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            lines += &format!("{name} = {durability}\n");
        }
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in SETTINGS.iter().copied().chain(settings) {
            lines += &format!("{name} = '{}'\n", value.replace('\'', "''"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_wins_over_what_durability_sets() {
        let mut options = PostgresOptions::default();
        options.settings.insert("synchronous_commit".into(), "remote_write".into());
        let lines = options.configuration(Path::new("/tmp/x"));
        let last = lines.lines().rfind(|line| line.starts_with("synchronous_commit"));
        assert_eq!(last, Some("synchronous_commit = 'remote_write'"));
        assert!(lines.contains("fsync = on\n"));
    }

    #[test]
    fn a_setting_wins_over_the_small_defaults() {
        let mut options = PostgresOptions::default();
        assert!(options.configuration(Path::new("/tmp/x")).contains("max_connections = '60'\n"));
        options.settings.insert("max_connections".into(), "300".into());
        let lines = options.configuration(Path::new("/tmp/x"));
        let last = lines.lines().rfind(|line| line.starts_with("max_connections"));
        assert_eq!(last, Some("max_connections = '300'"));
    }
}
