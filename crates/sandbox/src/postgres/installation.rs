//! Which PostgreSQL server is installed, and under which account it may run; it starts no server.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf, absolute},
    process::Command,
};

use super::error::{Doing, PostgresError};

/// Variable with the folder of `initdb` and `postgres`; it wins over whatever is installed.
pub(super) const BINARIES_VARIABLE: &str = "SANDBOX_PG_BIN";

/// The oldest major version that the service runs on.
pub(super) const OLDEST: u32 = 14;

/// The unprivileged account for root. It must have a passwd entry, or initdb fails: `nobody` has one everywhere.
pub(super) const UNPRIVILEGED: &str = "nobody";

/// Where servers are installed outside of the `PATH`, one folder a major version, and what stands before the version:
/// Debian and its kin, the PostgreSQL project's packages for Red Hat and its kin, Alpine, Homebrew on both kinds of Mac.
const ROOTS: &[(&str, &str)] = &[
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/usr/libexec", "postgresql"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];

/// The account that a server runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// `None`, which is our own, unless what we create belongs to root.
    pub(super) fn for_servers() -> Result<Option<Self>, PostgresError> {
        let probe = tempfile::tempfile_in("/tmp").and_then(|file| file.metadata());
        if probe.doing(|| "cannot create a file in /tmp".to_owned())?.uid() != 0 {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").doing(|| "cannot read /etc/passwd".to_owned())?;
        Self::find(&accounts, UNPRIVILEGED).map(Some).ok_or(PostgresError::NoAccount)
    }

    fn find(accounts: &str, name: &str) -> Option<Self> {
        let fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = fields.into_iter().find(|fields| fields[0] == name)?;
        // macOS writes its nobody as -2.
        let id = |field: usize| -> Option<u32> {
            let id = entry.get(field)?;
            id.parse().ok().or_else(|| id.parse::<i32>().ok().map(i32::cast_unsigned))
        };
        Some(Self { user: id(2)?, group: id(3)? })
    }
}

/// The folder that [`BINARIES_VARIABLE`] names, else the newest server of [`ROOTS`], else the first one on the `PATH`.
///
/// # Errors
/// When the variable is set and there is no server that we can run.
pub(super) fn installed() -> Result<Option<PathBuf>, PostgresError> {
    if let Some(chosen) = env::var_os(BINARIES_VARIABLE).filter(|chosen| !chosen.is_empty()) {
        return chosen_folder(Path::new(&chosen)).map(Some);
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&on_path).filter(|folder| folder.is_absolute());
    let known = ROOTS.iter().flat_map(|(root, before)| newest_first(Path::new(root), before));
    Ok(known.chain(on_path).find(|folder| has_server(folder)))
}

/// `folder`, from whatever folder a program of it is run.
///
/// # Errors
/// When it has no server that we can run.
pub(super) fn chosen_folder(folder: &Path) -> Result<PathBuf, PostgresError> {
    let folder = absolute(folder).doing(|| format!("cannot find {}", folder.display()))?;
    if has_server(&folder) { Ok(folder) } else { Err(PostgresError::NoServerIn { folder }) }
}

/// Whether there are both programs, of a version that the service runs on.
fn has_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
        && major_version(&folder.join("postgres")).is_some_and(|version| version >= OLDEST)
}

/// What the program says of itself, which it does for root as well.
fn major_version(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").output().ok()?;
    read_major_version(&String::from_utf8_lossy(&output.stdout))
}

/// `postgres (PostgreSQL) 17.5 (Debian 17.5-1)`, or `18devel`, `18rc1` before a release.
fn read_major_version(said: &str) -> Option<u32> {
    let version = said.split_once("(PostgreSQL)")?.1.trim_start();
    version.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// The `bin` folders of the versions below `root`, whose names begin with `before`, the highest version first.
fn newest_first(root: &Path, before: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(before)?.parse().ok()?;
            Some((version, entry.path()))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    // Alpine has the programs in the folder itself.
    versions.into_iter().flat_map(|(_, folder)| [folder.join("bin"), folder]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["pgsql-9", "pgsql-17", "pgsql-15", "pgsql-common", "16"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let found = newest_first(root.path(), "pgsql-");
        let versions = ["pgsql-17", "pgsql-15", "pgsql-9"].map(|name| root.path().join(name));
        let expected: Vec<PathBuf> = versions.into_iter().flat_map(|folder| [folder.join("bin"), folder]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_version_is_read_from_what_the_server_says() {
        assert_eq!(read_major_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(read_major_version("postgres (PostgreSQL) 18devel\n"), Some(18));
        assert_eq!(read_major_version("another program 15\n"), None);
    }

    #[test]
    fn a_folder_without_a_server_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = chosen_folder(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with(folder.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "nobody2:x:1:2::/:/bin/false\nnobody:x:65534:65533:n:/:/bin/false\n";
        let nobody = Account { user: 65534, group: 65533 };
        assert_eq!(Account::find(accounts, "nobody"), Some(nobody));
        assert_eq!(Account::find(accounts, "root"), None);
        let negative = Account { user: u32::MAX - 1, group: u32::MAX - 1 };
        assert_eq!(Account::find("# of the system\nnobody:*:-2:-2:n:/:/usr/bin/false\n", "nobody"), Some(negative));
    }
}
