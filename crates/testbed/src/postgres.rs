//! A private PostgreSQL server from an installed one; it creates no table and knows no schema.

mod installation;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::{port::free_port, supervised::Supervised};
use installation::{Account, server_binaries};

/// How long the server may take until it accepts connections, recovery after an immediate stop included.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long the server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Ports tried at the first start.
const PORT_ATTEMPTS: usize = 5;

/// How the server runs.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// A commit that was confirmed survives a crash of the machine (`fsync`, `synchronous_commit`, `full_page_writes`),
    /// as in production; without it commits are faster and only a crash of the server alone is survived.
    pub durable: bool,
    /// Lines of `postgresql.conf`, name to value. They win over the ones set by `durable`.
    pub settings: BTreeMap<String, String>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let settings = [("max_connections", "300"), ("shared_buffers", "256MB"), ("max_wal_size", "4GB")];
        Self { durable: true, settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into() }
    }
}

/// A PostgreSQL server of our own on 127.0.0.1, with its data in a temporary folder. It ends with us, even at a
/// kill -9, and leaves nothing; dropping it blocks until it has ended.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Supervised,
    data: PathBuf,
    port: u16,
    password: String,
}

impl PrivatePostgres {
    /// Makes a new cluster and starts its server. The binaries are those of `TEST_PG_BIN`, else the newest below
    /// `/usr/lib/postgresql`, else those on the `PATH`. Root runs them as `nobody`, for they refuse to run as root.
    ///
    /// # Errors
    /// When no server is installed (the error says what to install) or it does not get ready (with its log's tail).
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let cluster = move || Self::create_cluster(&options);
        let mut postgres = tokio::task::spawn_blocking(cluster).await??;
        for attempt in 1.. {
            postgres.set_port(free_port()?)?;
            match postgres.launch().await {
                Ok(()) => break,
                Err(_) if attempt < PORT_ATTEMPTS && postgres.port_was_taken() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(postgres)
    }

    /// URL of a database for the superuser. `postgres` always exists.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// The port on 127.0.0.1; it stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with all files of the server; it is gone after the drop.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// The process id of the server, whose sessions are its children.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Errors
    /// When it exists, or the server does not answer.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        let quoted = name.replace('"', "\"\"");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(format!("create database \"{quoted}\""))))
            .await
            .with_context(|| format!("cannot create the database {name}"))?;
        connection.close().await?;
        Ok(self.url(name))
    }

    /// Stops in order: open connections are cut, their transactions rolled back, the data written (`SIGINT`).
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<()> {
        self.server.stop("INT", STOP_LIMIT).await
    }

    /// Stops as in a crash: nobody is told, nothing is written, and the next start recovers from the log (`SIGQUIT`).
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop_immediately(&mut self) -> Result<()> {
        self.server.stop("QUIT", STOP_LIMIT).await
    }

    /// Starts the server on the same port and data, after a stop in order if it runs.
    ///
    /// # Errors
    /// When it does not get ready; the error has its log's tail.
    pub async fn restart(&mut self) -> Result<()> {
        if self.server.exit_status().is_none() {
            self.stop().await?;
        }
        self.launch().await
    }

    fn create_cluster(options: &PostgresOptions) -> Result<Self> {
        let binaries = server_binaries()?;
        // Under /tmp whatever TMPDIR says: a socket's path has at most 107 bytes.
        let folder = tempfile::Builder::new()
            .prefix("testpg.")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in("/tmp")
            .context("cannot create a folder under /tmp")?;
        let account = Account::for_owner_of(folder.path())?;
        let password = format!("{:032x}", rand::random::<u128>());
        let data = folder.path().join("data");
        let command = [binaries.join("postgres").into(), "-D".into(), OsString::from(&data)];
        let shell = clean_command(Path::new("/bin/sh"), account);
        if let Some(Account { user, group }) = account {
            chown(folder.path(), Some(user), Some(group))?;
        }
        let server = Supervised::new("PostgreSQL", shell, folder, "QUIT", &command)?;
        initialise(&binaries, server.folder(), &data, account, &password)?;
        append(&data.join("postgresql.conf"), &configuration(options, server.folder()))?;
        Ok(Self { server, data, port: 0, password })
    }

    fn set_port(&mut self, port: u16) -> Result<()> {
        self.port = port;
        append(&self.data.join("postgresql.conf"), &format!("port = {port}\n"))
    }

    async fn launch(&mut self) -> Result<()> {
        let state_file = self.data.join("postmaster.pid");
        self.server.launch(READY_LIMIT, |server, _| is_ready(&state_file, server.process_id())).await
    }

    fn port_was_taken(&self) -> bool {
        self.server.log_from(0).contains("Address already in use")
    }
}

/// Line 1 of the server's own pid file is its process, which tells it from one that a crash left; line 8 its state.
fn is_ready(state_file: &Path, process_id: Option<u32>) -> bool {
    let state = fs::read_to_string(state_file).unwrap_or_default();
    let named = state.lines().next().and_then(|line| line.trim().parse().ok());
    let is_ours = named.is_some() && named == process_id;
    is_ours && state.lines().nth(7).is_some_and(|line| line.trim() == "ready")
}

/// Runs initdb.
fn initialise(binaries: &Path, folder: &Path, data: &Path, account: Option<Account>, password: &str) -> Result<()> {
    let password_file = folder.join("password");
    fs::write(&password_file, password)?;
    if let Some(Account { user, group }) = account {
        chown(&password_file, Some(user), Some(group))?;
    }
    let initdb = binaries.join("initdb");
    let output = clean_command(&initdb, account)
        .args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"])
        .args(["--no-sync", "--no-instructions"])
        .arg("--pwfile")
        .arg(&password_file)
        .arg("--pgdata")
        .arg(data)
        .output()
        .with_context(|| format!("cannot run {}", initdb.display()))?;
    if !output.status.success() {
        bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    fs::remove_file(&password_file)?;
    Ok(())
}

/// Our lines of `postgresql.conf`: the last line of a name wins.
fn configuration(options: &PostgresOptions, sockets: &Path) -> String {
    let durability = if options.durable { "on" } else { "off" };
    let mut lines = format!("listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n", sockets.display());
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        lines += &format!("{name} = {durability}\n");
    }
    for (name, value) in &options.settings {
        lines += &format!("{name} = '{}'\n", value.replace('\'', "''"));
    }
    lines
}

/// A command without our environment (a `PGDATA` or `PGPORT` of the caller's would leak in), under the account.
fn clean_command(program: &Path, account: Option<Account>) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin").env("TZ", "UTC").current_dir("/");
    if let Some(Account { user, group }) = account {
        command.uid(user).gid(group);
    }
    command
}

fn append(file: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    fs::OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_wins_over_what_durability_sets() {
        let mut options = PostgresOptions::default();
        options.settings.insert("synchronous_commit".into(), "remote_write".into());
        let lines = configuration(&options, Path::new("/tmp/x"));
        let last = lines.lines().rfind(|line| line.starts_with("synchronous_commit"));
        assert_eq!(last, Some("synchronous_commit = 'remote_write'"));
        assert!(lines.contains("fsync = on\n"));
    }
}
