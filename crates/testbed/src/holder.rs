//! A program of its own that holds components for a run: started by us, it tells what serves, and ends with us. What it
//! holds (containers, the embedded broker) needs libraries that whoever starts it is built without.

mod program;
mod report;

use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

pub use program::{let_go, tell};
pub use report::{Component, Report};

/// How long the program may take to end what it holds once we let go.
const LETTING_GO: Duration = Duration::from_secs(60);

/// The program and what it holds. Both end with this value; if we are killed, the program sees the end of its input.
#[derive(Debug)]
pub struct Holder {
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

impl Holder {
    /// Starts the program and waits until each of these components serves or has failed; `note` hears what it says
    /// meanwhile.
    ///
    /// # Errors
    /// When the program says that none of them can be started here, or ends. A component that fails alone is one of the
    /// [`failures`](Self::failures).
    pub fn start(mut program: Command, components: &[Component], note: impl FnMut(&str)) -> Result<Self> {
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C in the terminal reaches our group only, so that the program survives to clean up.
            .process_group(0);
        let mut child = program.spawn().with_context(|| format!("cannot run {program:?}"))?;
        let lifeline = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        let mut holder = Self { program: child, lifeline, ready: Vec::new(), failures: Vec::new() };
        holder.follow(components.len(), output, note)?;
        Ok(holder)
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

    /// The process that holds them.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.program.id()
    }

    fn follow(&mut self, components: usize, output: impl BufRead, mut note: impl FnMut(&str)) -> Result<()> {
        let mut lines = output.lines();
        while self.ready.len() + self.failures.len() < components {
            let Some(line) = lines.next() else {
                bail!("the program that holds the components ended without an answer");
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

impl Drop for Holder {
    /// Blocks until what it holds is gone.
    fn drop(&mut self) {
        self.lifeline.take();
        let until = Instant::now() + LETTING_GO;
        while Instant::now() < until {
            match self.program.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let process = self.program.id();
        eprintln!("the components have not ended after {LETTING_GO:?}; process {process} is at it");
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const BOTH: [Component; 2] = [Component::Kafka, Component::Postgres];

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
        let note = |note: &str| notes.push(note.to_owned());
        let holder = Holder::start(Command::new(program), &BOTH, note).unwrap();
        assert_eq!(notes, ["pulling"]);
        assert_eq!(holder.failures(), [(Component::Kafka, "line 1\nline 2".to_owned())]);
        let [postgres] = holder.ready() else { panic!("{holder:?}") };
        assert_eq!((postgres.component, postgres.value.as_str()), (Component::Postgres, "here"));
        assert!(!folder.path().join("said.gone").exists());
        drop(holder);
        assert!(folder.path().join("said.gone").exists());
    }

    #[test]
    fn a_machine_that_can_start_none_is_an_error_with_the_reason() {
        let (_folder, program) = program_that_says(&[Report::Unavailable("no engine".to_owned())]);
        let error = Holder::start(Command::new(program), &BOTH, |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "no engine");
    }

    #[test]
    fn a_program_that_dies_is_an_error() {
        let error = Holder::start(Command::new(Path::new("/bin/false")), &BOTH, |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "the program that holds the components ended without an answer");
    }
}
