//! A streaming copy of a private PostgreSQL, as one has for a failover; when it takes over is the caller's decision.

use std::path::{Path, PathBuf};

use super::{
    PrivatePostgres, blocking,
    cluster::{append, clean_command, forget_password, private_folder, server_of},
    error::{Doing, PostgresError},
    installation::Account,
};
use crate::port::free_port;

/// What makes the copy. It comes with the server's own packages (Debian: postgresql-NN), not with every build of it.
const COPYING: &str = "pg_basebackup";

impl PrivatePostgres {
    /// Whether a copy can be made with what is installed.
    ///
    /// # Errors
    /// When it cannot; the error says what is missing.
    pub fn check_standby(&self) -> Result<(), PostgresError> {
        if self.binaries.join(COPYING).is_file() {
            return Ok(());
        }
        Err(PostgresError::NoCopying { program: COPYING, folder: self.binaries.clone() })
    }

    /// Copies the running server into one of its own, which follows it asynchronously, is read-only, and has the same
    /// users and passwords. Its URL and port are others.
    ///
    /// # Errors
    /// When the programs for it are not installed, or the copy does not get ready (with its log's tail).
    pub async fn standby(&self) -> Result<Self, PostgresError> {
        self.check_standby()?;
        let (binaries, account, password) = (self.binaries.clone(), self.account, self.password.clone());
        let (from, to) = (self.port, free_port().doing(|| "cannot listen on 127.0.0.1".to_owned())?);
        let mut copy = blocking(move || copy(binaries, account, password, from, to)).await?;
        copy.launch().await?;
        Ok(copy)
    }
}

fn copy(
    binaries: PathBuf,
    account: Option<Account>,
    password: String,
    from: u16,
    to: u16,
) -> Result<PrivatePostgres, PostgresError> {
    let folder = private_folder(account, &password)?;
    forget_password(folder.path())?;
    let data = folder.path().join("data");
    let server = server_of(&binaries, &data, folder, account)?;
    take(&binaries, &data, account, &password, from)?;
    let settings = format!("unix_socket_directories = '{}'\nport = {to}\n", server.folder().display());
    append(&data.join("postgresql.conf"), &settings)?;
    Ok(PrivatePostgres { server, data, port: to, password, binaries, account })
}

/// The password goes through the environment, which other users cannot read, and by `--write-recovery-conf` into a file
/// that only the account may open.
fn take(
    binaries: &Path,
    data: &Path,
    account: Option<Account>,
    password: &str,
    from: u16,
) -> Result<(), PostgresError> {
    let program = binaries.join(COPYING);
    let output = clean_command(&program, account)
        .env("PGPASSWORD", password)
        .args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast", "--wal-method=stream"])
        .args(["--write-recovery-conf", "--no-sync"])
        .arg(format!("--port={from}"))
        .arg("--pgdata")
        .arg(data)
        .output()
        .doing(|| format!("cannot run {}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(PostgresError::NotCopied { said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
