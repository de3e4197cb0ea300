//! The run with nothing configured: the service as it is, in a world of its own that this process starts and throws
//! away. No rule of delivery or payment is made here; only the world and what is shown of it.

mod compose;
mod counts;
mod screen;
mod verdicts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::Failure;
use crate::compose::{OtherPort, Serving, listen, serve, stop_signal};
use crate::config::{Config, Settings};
use crate::operators::audit::Report;
use crate::telemetry::{MetricsText, install_metrics};
use compose::World;
use counts::Counts;
use screen::Screen;

/// Nothing may have moved for this long before the sample counts as finished.
const IDLE: Duration = Duration::from_secs(2);
/// How often it is looked whether something moves.
const LOOK: Duration = Duration::from_millis(200);
/// If nothing has moved for this long and the sample is not finished, it never will be.
const STUCK: Duration = Duration::from_secs(120);

/// The options of the embedded run.
#[derive(Debug, Clone, Args)]
pub struct EmbeddedOptions {
    /// Leave when the sample is finished and audited: exit code 0 if the audit is clean, 1 if not.
    #[arg(long, global = true, help_heading = "Embedded run, with nothing configured")]
    pub until_idle: bool,
    /// Write the audit to this file, as JSON.
    #[arg(long, global = true, value_name = "PATH", help_heading = "Embedded run, with nothing configured")]
    pub audit_json: Option<PathBuf>,
    /// How many sample orders are confirmed.
    #[arg(
        long,
        global = true,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=compose::ORDERS_MAX),
        help_heading = "Embedded run, with nothing configured"
    )]
    pub orders: u32,
    /// Whether a free port is as good if the one of HTTP_ADDR is taken: nobody asked for that one.
    #[arg(skip)]
    pub any_port: bool,
}

impl EmbeddedOptions {
    /// The first option that only this run knows, if one was given.
    pub fn given(&self) -> Option<&'static str> {
        if self.until_idle {
            Some("--until-idle")
        } else if self.audit_json.is_some() {
            Some("--audit-json")
        } else if self.orders != 1_000 {
            Some("--orders")
        } else {
            None
        }
    }
}

/// Starts the world and the service in it, feeds it, audits it, and stays until a signal, or leaves if so told.
pub async fn run(options: EmbeddedOptions, config: Config) -> Result<(), Failure> {
    let stop = stop_signal()?;
    tokio::pin!(stop);
    if let Some(path) = &options.audit_json {
        writable(path)?;
    }
    let metrics = install_metrics().map_err(Failure::Configuration)?;
    let screen = Screen::new();
    screen.title();
    let world = tokio::select! {
        world = World::start(&config, &screen) => world?,
        () = &mut stop => {
            screen.note("stopped before anything was consumed");
            return Ok(());
        }
    };
    let settings = world.settings(config)?;
    let other_port = if options.any_port { OtherPort::Taken } else { OtherPort::Refused };
    let listener = listen(settings.config.http_addr, other_port).await?;
    screen.addresses(&settings, &listener);

    let (stopping, mut stopped) = watch::channel(false);
    let serving = Serving { metrics: Arc::clone(&metrics), listener };
    let told = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
    let mut service = tokio::spawn(serve(settings.clone(), serving, told));

    let sample = Sample { world: &world, settings: &settings, metrics, screen: &screen, options: &options };
    let outcome = tokio::select! {
        outcome = sample.run() => outcome,
        ended = &mut service => return Err(ended_early(ended)),
        () = &mut stop => Ok(Outcome::Interrupted),
    };
    if matches!(outcome, Ok(Outcome::Audited(_))) && !options.until_idle {
        screen.stays();
        tokio::select! {
            () = &mut stop => {}
            ended = &mut service => return Err(ended_early(ended)),
        }
    }
    screen.note("stopping: running work is finished, nothing new is started");
    stopping.send_replace(true);
    let drained = service.await.context("the service").map_err(Failure::Dependency)?;
    world.end().await;
    drained?;
    screen.note("stopped: everything settled is committed; the broker, the database and the provider are gone");
    match outcome? {
        Outcome::Audited(report) if !report.is_clean() => Err(Failure::Finding(anyhow!("the audit is not clean"))),
        Outcome::Audited(_) | Outcome::Interrupted => Ok(()),
    }
}

/// A service that ends before it is told to has failed, whatever it says.
fn ended_early(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Err(failure)) => failure,
        Ok(Ok(())) => Failure::Dependency(anyhow!("the service ended by itself")),
        Err(error) => Failure::Dependency(anyhow!(error).context("the service")),
    }
}

/// Found out before anything is started, and not when everything is done.
fn writable(path: &Path) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let opened = opened.with_context(|| format!("--audit-json: cannot write to {}", path.display()));
    opened.map(drop).map_err(Failure::Configuration)
}

/// How the sample ended.
enum Outcome {
    Audited(Report),
    Interrupted,
}

/// One sample, from its first record to its audit.
struct Sample<'a> {
    world: &'a World,
    settings: &'a Settings,
    metrics: MetricsText,
    screen: &'a Screen,
    options: &'a EmbeddedOptions,
}

impl Sample<'_> {
    async fn run(self) -> Result<Outcome, Failure> {
        let orders = usize::try_from(self.options.orders).unwrap_or(usize::MAX);
        let samples = self.world.samples(orders);
        let records = samples.len();
        let feeding: JoinHandle<_> = self.world.feed(&samples)?;
        let begun = Instant::now();
        self.until_idle(feeding, records).await?;
        let counts = self.counts();
        self.screen.finished(&counts, begun.elapsed());

        let desk = crate::operators::compose::Desk::new(self.settings.clone())?;
        let mut report = crate::operators::audit::compose::collect(&desk, true).await?;
        let books = self.world.books(&desk).await?;
        report.add_unexpected(verdicts::compare(&samples, &books));
        if let Some(path) = &self.options.audit_json {
            let mut json = report.to_json();
            json["delivered"] = counts.delivered().into();
            let written = std::fs::write(path, format!("{json:#}\n"));
            let written = written.with_context(|| format!("--audit-json: cannot write to {}", path.display()));
            written.map_err(Failure::Dependency)?;
        }
        self.screen.audit(&report, &counts);
        Ok(Outcome::Audited(report))
    }

    fn counts(&self) -> Counts {
        Counts::read(&(self.metrics)())
    }

    /// Until everything is written, everything that was written is committed, and nothing has moved for a while.
    async fn until_idle(&self, feeding: JoinHandle<Result<(), Failure>>, records: usize) -> Result<(), Failure> {
        let mut counts = Counts::default();
        let (mut moved, mut at_rest) = (Instant::now(), None::<Instant>);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.counts();
            if now != counts {
                (counts, moved, at_rest) = (now, Instant::now(), None);
            }
            self.screen.progress(&counts, records);
            if feeding.is_finished()
                && counts.delivered() >= records as u64
                && self.world.lag(self.settings).await? == 0
            {
                let since = *at_rest.get_or_insert_with(Instant::now);
                if since.elapsed() >= IDLE {
                    return feeding.await.context("writing the sample").map_err(Failure::Dependency)?;
                }
            }
            if moved.elapsed() > STUCK {
                let reason = "nothing has moved for two minutes, and the sample is not finished; run it with --log \
                              info to see why";
                return Err(Failure::Finding(anyhow!(reason)));
            }
        }
    }
}
