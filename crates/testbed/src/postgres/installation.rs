//! Which PostgreSQL server is installed, and under which account it may run; it starts nothing.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// Where Debian and its kin put the servers, one folder a major version.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// The unprivileged account for root. It must have a passwd entry, or initdb fails: `nobody` has one everywhere.
const UNPRIVILEGED: &str = "nobody";

/// The account that a server runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// `None`, which is our own, unless the folder that we have just created belongs to root.
    pub(super) fn for_owner_of(folder: &Path) -> Result<Option<Self>> {
        if fs::metadata(folder)?.uid() != 0 {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        Self::find(&accounts, UNPRIVILEGED)
            .map(Some)
            .with_context(|| format!("PostgreSQL refuses to run as root, and there is no account {UNPRIVILEGED}"))
    }

    fn find(accounts: &str, name: &str) -> Option<Self> {
        let fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = fields.into_iter().find(|fields| fields[0] == name)?;
        Some(Self { user: entry.get(2)?.parse().ok()?, group: entry.get(3)?.parse().ok()? })
    }
}

/// The folder with `initdb` and `postgres`.
pub(super) fn server_binaries() -> Result<PathBuf> {
    if let Some(chosen) = env::var_os("TEST_PG_BIN") {
        let chosen = PathBuf::from(chosen);
        if !has_server(&chosen) {
            bail!("TEST_PG_BIN is {}, where initdb and postgres are not", chosen.display());
        }
        return Ok(chosen);
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    newest_first(Path::new(DEBIAN_ROOT))
        .into_iter()
        .chain(env::split_paths(&on_path))
        .find(|folder| has_server(folder))
        .context(
            "no PostgreSQL server is installed: install one (Debian, Ubuntu: apt-get install postgresql; \
             macOS: brew install postgresql@17), or point TEST_PG_BIN to the folder with initdb and postgres",
        )
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}

/// The `bin` folders below `root`, the highest version first.
fn newest_first(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "17", "other"] {
            fs::create_dir(root.path().join(version)).unwrap();
        }
        let expected: Vec<_> = ["17", "15", "9"].iter().map(|version| root.path().join(version).join("bin")).collect();
        assert_eq!(newest_first(root.path()), expected);
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "nobody2:x:1:2::/:/bin/false\nnobody:x:65534:65533:n:/:/bin/false\n";
        let nobody = Account { user: 65534, group: 65533 };
        assert_eq!(Account::find(accounts, "nobody"), Some(nobody));
        assert_eq!(Account::find(accounts, "root"), None);
    }
}
