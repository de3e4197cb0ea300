//! A server process that cannot outlive us, however we end; it knows nothing of what the server is.
//!
//! Between us and the server stands a `/bin/sh` that reads our orders from a pipe. End of file on it means that we
//! are gone (dropped, exited, aborted, killed with -9): it then stops the server and removes the folder. A parent
//! death signal would not do: it fires when the thread that spawned the server ends.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use thiserror::Error;

use crate::wait::{TimedOut, wait_until_now};

/// `$1` the folder, `$2` the signal at end of file, then the server's command. Orders: `start`, or a signal's name.
/// It keeps `pid` (of the running or last server), `ended` (its exit status, once it has) and `log` in the folder.
///
/// A signal to everybody at once (a service manager's stop) must not take it before us; the server gets its own
/// handling of signals back. At the end the signal is repeated: one that comes before the server handles it is lost,
/// since a shell starts what runs beside it with `QUIT` ignored. The folder is removed again and again: whoever has
/// filled it for the server may still write to it.
const SUPERVISOR: &str = r#"
trap '' HUP INT TERM
folder=$1; last=$2; shift 2
running() { [ -s "$folder/pid" ] && [ ! -e "$folder/ended" ]; }
while read -r order; do
  case $order in
    start)
      { (trap - HUP INT TERM; exec "$@") </dev/null >>"$folder/log" 2>&1 & echo $! >"$folder/pid"; wait $!; echo $? >"$folder/ended"; } &
      until [ -s "$folder/pid" ]; do sleep 0.01; done ;;
    *)
      if running; then kill -"$order" "$(cat "$folder/pid")"; fi ;;
  esac
done
while running; do kill -"$last" "$(cat "$folder/pid")"; sleep 0.02; done
wait
tries=100
until rm -rf "$folder" || [ $tries -eq 0 ]; do tries=$((tries - 1)); sleep 0.1; done
"#;

/// How long the supervisor may take to stop the server and remove the folder once we let go.
const LETTING_GO: Duration = Duration::from_secs(20);

/// Lines of the log in an error.
const TAIL_LINES: usize = 25;

/// What went wrong with a server.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It has ended instead of getting ready: its log says why.
    #[error("{name} ended with status {status}; its log ends:\n{log}")]
    Ended {
        /// Which server.
        name: &'static str,
        /// Its exit status, 128 and the signal's number after a signal.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// It still runs and is not ready.
    #[error("{name} did not get ready; its log ends:\n{log}")]
    NotReady {
        /// Which server.
        name: &'static str,
        /// The last lines of its log.
        log: String,
        /// The wait.
        #[source]
        source: TimedOut,
    },
    /// It still runs, though it was told to end.
    #[error("{name} did not end")]
    NotEnded {
        /// Which server.
        name: &'static str,
        /// The wait.
        #[source]
        source: TimedOut,
    },
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

/// A server under a supervising shell, with the folder that goes when it goes.
#[derive(Debug)]
pub struct Supervised {
    name: &'static str,
    shell: Child,
    lifeline: Option<ChildStdin>,
    folder: PathBuf,
}

impl Supervised {
    /// Starts the supervisor, not yet the server. `shell` carries the account and the environment of both; `server`
    /// is the server's command; `last_signal` (`QUIT`, `KILL`) ends it when nobody needs its files any more.
    ///
    /// # Errors
    /// When there is no `/bin/sh` that the account may run.
    pub fn new(
        name: &'static str,
        mut shell: Command,
        folder: TempDir,
        last_signal: &str,
        server: &[OsString],
    ) -> Result<Self, ServerError> {
        let mut child = shell
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(folder.path())
            .arg(last_signal)
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C in the terminal reaches our group only, so that the supervisor survives to clean up.
            .process_group(0)
            .spawn()
            .map_err(|source| io_error(format!("cannot start the supervisor of {name}"), source))?;
        let lifeline = child.stdin.take();
        Ok(Self { name, shell: child, lifeline, folder: folder.keep() })
    }

    /// The folder with the server's files; it is gone after the drop.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server and waits until it `is_ready`, which is told where in the log this run begins (in bytes).
    ///
    /// # Errors
    /// When it ends instead, or needs longer than the limit; the error has the tail of its log.
    pub async fn launch(
        &mut self,
        limit: Duration,
        is_ready: impl Fn(&Self, usize) -> bool,
    ) -> Result<(), ServerError> {
        let begin = self.log_length();
        for left_over in ["ended", "pid"].map(|name| self.folder.join(name)) {
            if left_over.exists() {
                fs::remove_file(&left_over)
                    .map_err(|source| io_error(format!("cannot remove {}", left_over.display()), source))?;
            }
        }
        self.order("start")?;
        let name = self.name;
        let waited = wait_until_now(name, limit, || self.exit_status().is_some() || is_ready(self, begin));
        waited.await.map_err(|source| ServerError::NotReady { name, log: self.log_tail(), source })?;
        match self.exit_status() {
            Some(status) => Err(ServerError::Ended { name, status, log: self.log_tail() }),
            None => Ok(()),
        }
    }

    /// Sends a signal (`INT`, `TERM`, `KILL`) and waits until the server has ended; its files stay.
    ///
    /// # Errors
    /// When it has not ended after the limit, or the supervisor is gone.
    pub async fn stop(&mut self, signal: &str, limit: Duration) -> Result<(), ServerError> {
        self.order(signal)?;
        let what = format!("its end after SIG{signal}");
        let waited = wait_until_now(&what, limit, || self.exit_status().is_some());
        waited.await.map_err(|source| ServerError::NotEnded { name: self.name, source })
    }

    /// The exit status of the server, once it has ended.
    #[must_use]
    pub fn exit_status(&self) -> Option<String> {
        let status = fs::read_to_string(self.folder.join("ended")).ok()?;
        status.ends_with('\n').then(|| status.trim().to_owned())
    }

    /// The process id of the server that was launched last.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        let id = fs::read_to_string(self.folder.join("pid")).ok()?;
        id.trim().parse().ok()
    }

    /// What the server has printed from byte `offset` of its log on.
    #[must_use]
    pub fn log_from(&self, offset: usize) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(log.get(offset..).unwrap_or_default()).into_owned()
    }

    fn log_length(&self) -> usize {
        let metadata = fs::metadata(self.folder.join("log"));
        metadata.map_or(0, |log| usize::try_from(log.len()).unwrap_or(usize::MAX))
    }

    /// The last lines that the server has printed.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log_from(0);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Passes an order to the supervisor: `start`, or a signal (`TERM`), which it sends to the server if that runs.
    ///
    /// # Errors
    /// When the supervisor has ended.
    pub fn order(&mut self, order: &str) -> Result<(), ServerError> {
        let lifeline = self.lifeline.as_mut().ok_or(io::Error::from(io::ErrorKind::BrokenPipe));
        lifeline
            .and_then(|lifeline| writeln!(lifeline, "{order}"))
            .map_err(|source| io_error(format!("the supervisor of {} has ended", self.name), source))
    }
}

fn io_error(what: String, source: io::Error) -> ServerError {
    ServerError::Io { what, source }
}

impl Drop for Supervised {
    /// Blocks until the server has ended and its folder is gone.
    fn drop(&mut self) {
        self.lifeline.take();
        let until = Instant::now() + LETTING_GO;
        while Instant::now() < until {
            match self.shell.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        tracing::warn!(
            server = self.name,
            limit = ?LETTING_GO,
            supervisor = self.shell.id(),
            "a server did not end in time and its supervisor still waits for it"
        );
    }
}

#[cfg(test)]
mod tests;
