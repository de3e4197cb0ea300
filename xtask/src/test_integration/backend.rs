//! Which backend a run takes; what a backend starts is its own.

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;

use super::{components::Components, containers, embedded};
use crate::cargo::Libraries;

/// Where Kafka and PostgreSQL come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The first of the others that works, in their order here.
    Auto,
    /// Containers of `TEST_KAFKA_IMAGE` and `TEST_POSTGRES_IMAGE`, else of the public images.
    Docker,
    /// Installed programs, started for this run: Kafka on Java (its jars come from Maven), PostgreSQL from its package.
    Local,
    /// librdkafka's broker in a process of its own, and PostgreSQL as with `local`, fetched where none is installed. What
    /// that broker cannot do is skipped, each test with the reason.
    Embedded,
}

/// What `auto` tries.
const IN_ORDER: &[Backend] = &[Backend::Docker, Backend::Local, Backend::Embedded];

impl Backend {
    /// Starts the components that the tests share, and says what they are. A component that could not start is among
    /// their failures.
    ///
    /// # Errors
    /// When this very command is broken; that is never a reason to take another backend.
    pub(crate) fn start(self, libraries: Libraries) -> Result<Components> {
        match self {
            Self::Auto => {
                let start = |backend: Self| backend.start(libraries);
                first_that_works(IN_ORDER, start, |components| components.failed(), |line| println!("{line}"))
            }
            Self::Docker => containers::start(libraries),
            Self::Local => Components::start_local(),
            Self::Embedded => embedded::start(libraries),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no backend is hidden");
        formatter.write_str(value.get_name())
    }
}

/// Starts one after the other until one has no failure, and says why the others are not taken. If none works, the last
/// one is returned as it is: it needs the least.
fn first_that_works<T>(
    backends: &[Backend],
    start: impl Fn(Backend) -> Result<T>,
    failed: impl Fn(&T) -> Option<String>,
    mut say: impl FnMut(String),
) -> Result<T> {
    let (last, others) = backends.split_last().expect("auto has something to try");
    for (backend, next) in others.iter().zip(&backends[1..]) {
        let started = start(*backend)?;
        match failed(&started) {
            None => return Ok(started),
            Some(reason) => say(format!("{backend}: not available ({reason}), taking {next}")),
        }
    }
    start(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was taken and said, if these work.
    fn taken(working: &[Backend]) -> (Backend, Vec<String>) {
        let mut said = Vec::new();
        let failed = |backend: &Backend| (!working.contains(backend)).then(|| "no engine".to_owned());
        let taken = first_that_works(IN_ORDER, Ok, failed, |line| said.push(line)).unwrap();
        (taken, said)
    }

    #[test]
    fn the_first_that_works_is_taken_and_those_before_it_are_explained() {
        use Backend::{Docker, Embedded, Local};
        let explained = vec![
            "docker: not available (no engine), taking local".to_owned(),
            "local: not available (no engine), taking embedded".to_owned(),
        ];
        assert_eq!(taken(&[Docker, Local, Embedded]), (Docker, vec![]));
        assert_eq!(taken(&[Docker]), (Docker, vec![]));
        assert_eq!(taken(&[Local, Embedded]), (Local, explained[..1].to_vec()));
        assert_eq!(taken(&[Embedded]), (Embedded, explained.clone()));
        assert_eq!(taken(&[]), (Embedded, explained));
    }
}
