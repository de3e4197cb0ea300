//! The run's Kafka and PostgreSQL as containers, held by a program of their own (`src/bin/containers`, the feature
//! `containers`). No Docker client is built into this library: whoever starts the program needs none.

mod images;
mod report;

use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

pub use images::Images;
pub use report::{Component, Report};

/// How long the program may take to remove its containers once we let go.
const LETTING_GO: Duration = Duration::from_secs(60);

/// Looks whether a Docker engine may be there at all, without a client: the program's own look needs a build first.
///
/// # Errors
/// When `DOCKER_HOST` is not set and nobody listens on any of the usual sockets; the error names them.
pub fn engine_in_sight() -> Result<()> {
    if env::var_os("DOCKER_HOST").is_some() {
        return Ok(());
    }
    let sockets = usual_sockets();
    let Some(socket) = sockets.iter().find(|socket| socket.exists()) else {
        let places: Vec<_> = sockets.iter().map(|socket| socket.display().to_string()).collect();
        bail!("no Docker: DOCKER_HOST is not set, and there is no socket {}", places.join(", "));
    };
    UnixStream::connect(socket)
        .with_context(|| format!("no Docker: nobody answers on {}, start it", socket.display()))?;
    Ok(())
}

/// Where testcontainers looks, in its order: it takes the first that exists.
fn usual_sockets() -> Vec<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below = |root: Option<PathBuf>, path: &str| root.map(|root| root.join(path));
    [
        Some(PathBuf::from("/var/run/docker.sock")),
        below(folder("XDG_RUNTIME_DIR"), ".docker/run/docker.sock"),
        below(folder("HOME"), ".docker/run/docker.sock"),
        below(folder("HOME"), ".docker/desktop/docker.sock"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Containers that the run shares. They end with this value; if we are killed, the program sees the end of its input
/// and removes them; if it is killed as well, the next start removes them.
#[derive(Debug)]
pub struct Containers {
    program: Child,
    lifeline: Option<ChildStdin>,
    ready: Vec<Ready>,
    failures: Vec<(Component, String)>,
}

/// A component that serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Which one.
    pub component: Component,
    /// What the tests find it by, the value of [`Component::variable`].
    pub value: String,
    /// What it is and where it comes from, for people.
    pub about: String,
}

impl Containers {
    /// Starts the program and waits until each component serves or has failed; `note` hears what it says meanwhile.
    ///
    /// # Errors
    /// When no container can run here: no engine answers, or an image is neither here nor can be pulled. A component
    /// that fails alone is one of the [`failures`](Self::failures).
    pub fn start(program: &Path, images: &Images, note: impl FnMut(&str)) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["--kafka", &images.kafka, "--postgres", &images.postgres])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C in the terminal reaches our group only, so that the program survives to clean up.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let lifeline = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        let mut containers = Self { program: child, lifeline, ready: Vec::new(), failures: Vec::new() };
        containers.follow(output, note)?;
        Ok(containers)
    }

    /// The components that serve.
    #[must_use]
    pub fn ready(&self) -> &[Ready] {
        &self.ready
    }

    /// The components that could not start, each with the reason.
    #[must_use]
    pub fn failures(&self) -> &[(Component, String)] {
        &self.failures
    }

    /// The process that holds the containers.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.program.id()
    }

    fn follow(&mut self, output: impl BufRead, mut note: impl FnMut(&str)) -> Result<()> {
        let mut lines = output.lines();
        while self.ready.len() + self.failures.len() < Component::ALL.len() {
            let Some(line) = lines.next() else {
                bail!("the program that holds the containers ended without an answer");
            };
            match Report::from_line(&line?)? {
                Report::Note(text) => note(&text),
                Report::Unavailable(reason) => bail!("{reason}"),
                Report::Failed { component, error } => self.failures.push((component, error)),
                Report::Ready { component, value, about } => self.ready.push(Ready { component, value, about }),
            }
        }
        Ok(())
    }
}

impl Drop for Containers {
    /// Blocks until the containers are removed.
    fn drop(&mut self) {
        self.lifeline.take();
        let until = Instant::now() + LETTING_GO;
        while Instant::now() < until {
            match self.program.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        eprintln!("the containers are not removed after {LETTING_GO:?}; process {} is at it", self.program.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints the lines and then waits for the end of its input, as the real one does.
    fn program_that_says(lines: &[Report]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (said, program) = (folder.path().join("said"), folder.path().join("program"));
        let text: String = lines.iter().map(|line| format!("{}\n", line.to_line())).collect();
        std::fs::write(&said, text).unwrap();
        let script = format!("#!/bin/sh\ncat {}\ncat >/dev/null\ntouch {}.gone\n", said.display(), said.display());
        std::fs::write(&program, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        (folder, program)
    }

    fn images() -> Images {
        Images { kafka: "kafka:1".to_owned(), postgres: "postgres:1".to_owned() }
    }

    fn ready(component: Component) -> Report {
        Report::Ready { component, value: "here".to_owned(), about: "a container".to_owned() }
    }

    #[test]
    fn what_serves_and_what_failed_is_told_apart_and_letting_go_ends_the_program() {
        let (folder, program) = program_that_says(&[
            Report::Note("pulling".to_owned()),
            Report::Failed { component: Component::Kafka, error: "line 1\nline 2".to_owned() },
            ready(Component::Postgres),
        ]);
        let mut notes = Vec::new();
        let containers = Containers::start(&program, &images(), |note| notes.push(note.to_owned())).unwrap();
        assert_eq!(notes, ["pulling"]);
        assert_eq!(containers.failures(), [(Component::Kafka, "line 1\nline 2".to_owned())]);
        let [postgres] = containers.ready() else { panic!("{containers:?}") };
        assert_eq!((postgres.component, postgres.value.as_str()), (Component::Postgres, "here"));
        assert!(!folder.path().join("said.gone").exists());
        drop(containers);
        assert!(folder.path().join("said.gone").exists());
    }

    #[test]
    fn a_machine_without_containers_is_an_error_with_the_reason() {
        let (_folder, program) = program_that_says(&[Report::Unavailable("no engine".to_owned())]);
        let error = Containers::start(&program, &images(), |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "no engine");
    }

    #[test]
    fn a_program_that_dies_is_an_error() {
        let error = Containers::start(Path::new("/bin/false"), &images(), |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "the program that holds the containers ended without an answer");
    }
}
