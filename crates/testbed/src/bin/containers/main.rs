//! Holds the run's Kafka and PostgreSQL as containers for as long as its standard input is open, and tells about them
//! on standard output; `testbed::containers` starts it. No test lives here.

mod broker;
mod database;
mod engine;
mod request;
mod run;

use std::{
    future::pending,
    io::{self, Read, Write},
    process::ExitCode,
    thread,
};

use anyhow::{Context, Result};
use clap::Parser;
use testbed::containers::{Component, Report};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinSet,
};

use engine::Engine;
use request::Served;
use run::Run;

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
    let let_go = let_go()?;
    let engine = Engine::reach().await?;
    tell(&Report::Note(format!("Docker {} answers", engine.version())));
    for container in engine.remove_left_over().await? {
        tell(&Report::Note(format!("removed {container}, which a run that was killed left behind")));
    }
    let run = Run::begin()?;
    let mut tasks = JoinSet::new();
    let outcome = tokio::select! {
        () = let_go => Ok(()),
        outcome = serve(&engine, images, &run, &mut tasks) => outcome,
    };
    tasks.shutdown().await;
    // A start that was cut short has no handle yet: only its label tells.
    let removed = engine.remove(&run).await;
    outcome.and(removed)
}

/// Starts both side by side and holds them. Each is in a task of its own: joined bare, one that fails early can leave
/// the other waiting for ever.
async fn serve(engine: &Engine, images: &CommandLine, run: &Run, tasks: &mut JoinSet<()>) -> Result<()> {
    for image in [&images.kafka, &images.postgres] {
        engine.provide(image, |note| tell(&Report::Note(note))).await?;
    }
    let (image, labels) = (images.kafka.clone(), run.labels());
    tasks.spawn(async move { hold_one(Component::Kafka, broker::start(&image, labels).await).await });
    let (image, labels) = (images.postgres.clone(), run.labels());
    tasks.spawn(async move { hold_one(Component::Postgres, database::start(&image, labels).await).await });
    while let Some(ended) = tasks.join_next().await {
        ended.context("the start of a container was cut short")?;
    }
    pending().await
}

async fn hold_one<C>(component: Component, started: Result<Served<C>>) {
    match started {
        Ok(Served { container, value, about }) => {
            tell(&Report::Ready { component, value, about });
            let _held = container;
            pending::<()>().await;
        }
        Err(error) => tell(&Report::Failed { component, error: format!("{error:#}") }),
    }
}

/// Resolves at the end of the input, or at a signal that asks us to end.
fn let_go() -> Result<impl Future<Output = ()>> {
    let (closed, end_of_input) = oneshot::channel();
    // A thread, since a read of the input cannot be cancelled and the runtime would wait for it at the end.
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // An error is an end as well.
        io::stdin().lock().read_to_end(&mut Vec::new()).ok();
        closed.send(()).ok();
    })?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = end_of_input => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Whoever started us may be gone, and then there is nobody to tell.
fn tell(report: &Report) {
    writeln!(io::stdout(), "{}", report.to_line()).ok();
}
