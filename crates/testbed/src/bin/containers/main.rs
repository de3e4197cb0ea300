//! Holds the run's Kafka and PostgreSQL as containers for as long as its standard input is open, and tells about them
//! on standard output; `testbed::containers` starts it. No test lives here.

mod broker;
mod database;
mod engine;
mod request;
mod run;

use std::{any::Any, future::pending, pin::pin, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use testbed::holder::{Component, Report, let_go, tell};
use tokio::{task::JoinSet, time::timeout};

use engine::Engine;
use request::Served;
use run::Run;

/// How often we look whether a start that is to fail has failed.
const BETWEEN_REMOVALS: Duration = Duration::from_millis(100);

/// Starts the containers that a test run shares, and removes them at the end of the input.
#[derive(Debug, Parser)]
struct CommandLine {
    /// The image of Kafka.
    #[arg(long, value_name = "IMAGE")]
    kafka: String,
    /// The image of PostgreSQL.
    #[arg(long, value_name = "IMAGE")]
    postgres: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let images = CommandLine::parse();
    match hold(&images).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&Report::Unavailable(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Returns once whoever started us has let go, and everything is removed.
async fn hold(images: &CommandLine) -> Result<()> {
    let mut let_go = pin!(let_go()?);
    let engine = Engine::reach().await?;
    tell(&Report::Note(format!("Docker {} answers", engine.version())));
    for container in engine.remove_left_over().await? {
        tell(&Report::Note(format!("removed {container}, which a run that was killed left behind")));
    }
    for image in [&images.kafka, &images.postgres] {
        tokio::select! {
            () = &mut let_go => return Ok(()),
            provided = engine.provide(image, |note| tell(&Report::Note(note))) => provided?,
        }
    }
    let run = Run::begin()?;
    let mut starting = start_both(images, &run);
    let outcome = tokio::select! {
        () = &mut let_go => Ok(()),
        outcome = hold_all(&mut starting) => outcome,
    };
    remove(&engine, &run, starting).await?;
    outcome
}

/// A container, or nothing where its start has failed; it lives as long as this.
type Held = Option<Box<dyn Any + Send>>;

/// Starts both side by side, each in a task of its own: joined bare, one that fails early can leave the other waiting
/// for ever.
fn start_both(images: &CommandLine, run: &Run) -> JoinSet<Held> {
    let mut starting = JoinSet::new();
    let (image, labels) = (images.kafka.clone(), run.labels());
    starting.spawn(async move { told(Component::Kafka, broker::start(&image, labels).await) });
    let (image, labels) = (images.postgres.clone(), run.labels());
    starting.spawn(async move { told(Component::Postgres, database::start(&image, labels).await) });
    starting
}

fn told<C: Send + 'static>(component: Component, started: Result<Served<C>>) -> Held {
    match started {
        Ok(Served { container, value, about }) => {
            tell(&Report::Ready { component, value, about });
            Some(Box::new(container))
        }
        Err(error) => {
            tell(&Report::Failed { component, error: format!("{error:#}") });
            None
        }
    }
}

/// Holds what is started, and returns only if that goes wrong.
async fn hold_all(starting: &mut JoinSet<Held>) -> Result<()> {
    let mut held = Vec::new();
    while let Some(started) = starting.join_next().await {
        held.push(started.context("the start of a container was cut short")?);
    }
    pending().await
}

/// Removes what runs and what is being started. A start is not cut short, for a request that is on its way would make
/// a container that nobody knows: its container is removed under its feet until it fails.
async fn remove(engine: &Engine, run: &Run, mut starting: JoinSet<Held>) -> Result<()> {
    loop {
        engine.remove(run).await?;
        if let Ok(None) = timeout(BETWEEN_REMOVALS, starting.join_next()).await {
            return engine.remove(run).await;
        }
    }
}
