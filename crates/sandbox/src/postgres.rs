//! A private PostgreSQL server, of an installed one or of one that is fetched; it creates no table and knows no schema.

mod binaries;
mod cluster;
mod error;
#[cfg(feature = "fetch")]
mod fetch;
mod installation;
mod options;
mod progress;
mod standby;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use error::PostgresError;
#[cfg(feature = "fetch")]
pub use fetch::FetchError;
pub use options::{Binaries, PostgresOptions};
pub use progress::Progress;
use tokio::task::spawn_blocking;

use crate::{
    port::free_port,
    supervised::{ServerError, Supervised},
};
use binaries::binaries;
use cluster::{append, initialise, private_folder, server_of};
use error::Doing;
use installation::Account;

/// How long the server may take until it accepts connections, recovery after an immediate stop included.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long the server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Ports tried at the first start.
const PORT_ATTEMPTS: usize = 5;

/// A PostgreSQL server of our own on 127.0.0.1, with its data in a temporary folder. It ends with us, even at a
/// kill -9, and leaves nothing; dropping it blocks until it has ended.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Supervised,
    data: PathBuf,
    port: u16,
    password: String,
    binaries: PathBuf,
    account: Option<Account>,
}

impl PrivatePostgres {
    /// Makes a new cluster and starts its server. Root runs it as `nobody`, for it refuses to run as root. `progress` is
    /// told what takes long.
    ///
    /// # Errors
    /// When there is no server to run (the error says what to do) or it does not get ready (with its log's tail).
    pub async fn start(
        options: PostgresOptions,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Self, PostgresError> {
        let account = blocking(Account::for_servers).await?;
        let binaries = binaries(&options.binaries, account, progress).await?;
        let mut postgres = blocking(move || Self::create_cluster(&options, &binaries, account)).await?;
        for attempt in 1.. {
            let port = free_port().doing(|| "cannot listen on 127.0.0.1".to_owned())?;
            postgres.set_port(port)?;
            match postgres.launch().await {
                Ok(()) => break,
                Err(_) if attempt < PORT_ATTEMPTS && postgres.port_was_taken() => {}
                Err(error) => return Err(error.into()),
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

    /// Stops in order: open connections are cut, their transactions rolled back, the data written (`SIGINT`).
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<(), PostgresError> {
        Ok(self.server.stop("INT", STOP_LIMIT).await?)
    }

    /// Stops as in a crash: nobody is told, nothing is written, and the next start recovers from the log (`SIGQUIT`).
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop_immediately(&mut self) -> Result<(), PostgresError> {
        Ok(self.server.stop("QUIT", STOP_LIMIT).await?)
    }

    /// Starts the server on the same port and data, after a stop in order if it runs.
    ///
    /// # Errors
    /// When it does not get ready; the error has its log's tail.
    pub async fn restart(&mut self) -> Result<(), PostgresError> {
        if self.server.exit_status().is_none() {
            self.stop().await?;
        }
        Ok(self.launch().await?)
    }

    fn create_cluster(
        options: &PostgresOptions,
        binaries: &Path,
        account: Option<Account>,
    ) -> Result<Self, PostgresError> {
        let password = format!("{:032x}", rand::random::<u128>());
        let folder = private_folder(account, &password)?;
        let data = folder.path().join("data");
        let server = server_of(binaries, &data, folder, account)?;
        initialise(binaries, server.folder(), &data, account)?;
        append(&data.join("postgresql.conf"), &options.configuration(server.folder()))?;
        Ok(Self { server, data, port: 0, password, binaries: binaries.to_owned(), account })
    }

    fn set_port(&mut self, port: u16) -> Result<(), PostgresError> {
        self.port = port;
        append(&self.data.join("postgresql.conf"), &format!("port = {port}\n"))
    }

    async fn launch(&mut self) -> Result<(), ServerError> {
        let state_file = self.data.join("postmaster.pid");
        self.server.launch(READY_LIMIT, |server, _| is_ready(&state_file, server.process_id())).await
    }

    fn port_was_taken(&self) -> bool {
        self.server.log_from(0).contains("Address already in use")
    }
}

/// Line 1 of the server's own pid file is its process, which tells it from one that a crash left; line 8 its state, which
/// is `standby` for one that follows another and takes connections.
fn is_ready(state_file: &Path, process_id: Option<u32>) -> bool {
    let state = fs::read_to_string(state_file).unwrap_or_default();
    let named = state.lines().next().and_then(|line| line.trim().parse().ok());
    let is_ours = named.is_some() && named == process_id;
    is_ours && state.lines().nth(7).is_some_and(|line| ["ready", "standby"].contains(&line.trim()))
}

/// Does what blocks; a panic in it is ours.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
