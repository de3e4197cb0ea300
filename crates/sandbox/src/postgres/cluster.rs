//! The files of a new cluster, made under the account of its server; it starts no server.

use std::{
    ffi::OsString,
    fs,
    io::Write,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use tempfile::TempDir;

use super::{
    error::{Doing, PostgresError},
    installation::Account,
};
use crate::supervised::Supervised;

/// The password of the superuser, while initdb needs it.
const PASSWORD_FILE: &str = "password";

/// A folder that only the account may enter, with the password in it.
pub(super) fn private_folder(account: Option<Account>, password: &str) -> Result<TempDir, PostgresError> {
    // Under /tmp whatever TMPDIR says: a socket's path has at most 107 bytes.
    let folder = tempfile::Builder::new()
        .prefix("app-billing-postgres.")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in("/tmp")
        .doing(|| "cannot create a folder under /tmp".to_owned())?;
    let file = folder.path().join(PASSWORD_FILE);
    fs::write(&file, password).doing(|| format!("cannot write {}", file.display()))?;
    hand_over(&file, account)?;
    // Last: from now on the account may put a link where we would write.
    hand_over(folder.path(), account)?;
    Ok(folder)
}

/// The server of these data, under its supervisor, not started yet.
pub(super) fn server_of(
    binaries: &Path,
    data: &Path,
    folder: TempDir,
    account: Option<Account>,
) -> Result<Supervised, PostgresError> {
    let command = [binaries.join("postgres").into(), "-D".into(), OsString::from(data)];
    let shell = clean_command(Path::new("/bin/sh"), account);
    Ok(Supervised::new("PostgreSQL", shell, folder, "QUIT", &command)?)
}

/// Runs initdb with the password of the folder.
pub(super) fn initialise(
    binaries: &Path,
    folder: &Path,
    data: &Path,
    account: Option<Account>,
) -> Result<(), PostgresError> {
    let (initdb, password_file) = (binaries.join("initdb"), folder.join(PASSWORD_FILE));
    let output = clean_command(&initdb, account)
        .args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"])
        .args(["--no-sync", "--no-instructions"])
        .arg("--pwfile")
        .arg(&password_file)
        .arg("--pgdata")
        .arg(data)
        .output()
        .doing(|| format!("cannot run {}", initdb.display()))?;
    if !output.status.success() {
        return Err(PostgresError::NoCluster { said: String::from_utf8_lossy(&output.stderr).trim().to_owned() });
    }
    forget_password(folder)
}

/// Removes the password's file: nobody needs it any more.
pub(super) fn forget_password(folder: &Path) -> Result<(), PostgresError> {
    let file = folder.join(PASSWORD_FILE);
    fs::remove_file(&file).doing(|| format!("cannot remove {}", file.display()))
}

/// Gives a file to the account.
fn hand_over(path: &Path, account: Option<Account>) -> Result<(), PostgresError> {
    let Some(Account { user, group }) = account else { return Ok(()) };
    chown(path, Some(user), Some(group)).doing(|| format!("cannot give {} to another account", path.display()))
}

/// A command without our environment (a `PGDATA` or `PGPORT` of the caller's would leak in), under the account.
pub(super) fn clean_command(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin").env("TZ", "UTC").current_dir("/");
    if let Some(Account { user, group }) = account {
        command.uid(user).gid(group);
    }
    command
}

/// Writes at the end of a file.
pub(super) fn append(file: &Path, text: &str) -> Result<(), PostgresError> {
    fs::OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .doing(|| format!("cannot write to {}", file.display()))
}
