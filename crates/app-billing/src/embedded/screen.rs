//! What the embedded run shows: progress on standard error, the audit on standard output. In colour where a terminal
//! reads it, and plain where NO_COLOR is set or a file does. It decides nothing.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use tokio::net::TcpListener;

use super::counts::Counts;
use crate::config::Settings;
use crate::operators::audit::Report;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// How often progress is told to what is no terminal.
const TOLD: Duration = Duration::from_secs(2);

/// Where everything is shown.
#[derive(Clone)]
pub(super) struct Screen {
    line: Arc<Mutex<Line>>,
}

/// The line that is written over and over.
struct Line {
    is_terminal: bool,
    is_open: bool,
    told: Option<Instant>,
}

impl Screen {
    pub(super) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { line: Arc::new(Mutex::new(Line { is_terminal, is_open: false, told: None })) }
    }

    pub(super) fn title(&self) {
        self.note(&format!(
            "{BOLD}app-billing{BOLD:#}: nothing is configured, so everything it needs is started here and thrown away \
             at the end"
        ));
    }

    /// A line of its own.
    pub(super) fn note(&self, text: &str) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.close();
        tell(&format!("{text}\n"));
    }

    /// Says that something is started, and how long it took.
    pub(super) async fn step<T, E>(&self, what: &str, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let begun = Instant::now();
        let done = work.await?;
        self.note(&format!("  started {what} {DIM}({:.1} s){DIM:#}", begun.elapsed().as_secs_f64()));
        Ok(done)
    }

    /// Where everything can be reached from another terminal.
    pub(super) fn addresses(&self, settings: &Settings, listener: &TcpListener) {
        let address = listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
        self.note(&format!("  http://{address}/ready and /metrics show the service"));
        self.note(&format!(
            "  to look inside from another terminal: export KAFKA_BROKERS={} DATABASE_URL={} PAYMENT_URL={}",
            settings.brokers,
            settings.database.url.reveal(),
            settings.payment_url
        ));
    }

    /// How far the sample is.
    pub(super) fn progress(&self, counts: &Counts, records: usize) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!(
            "{records} records: {} charged, {} duplicates skipped, {} sent to a retry, {} dead letters, {} ignored",
            counts.applied, counts.duplicates, counts.retried, counts.dead_lettered, counts.ignored
        );
        if line.is_terminal {
            line.is_open = true;
            tell(&format!("\r\u{1b}[2K  {text}"));
        } else if line.told.is_none_or(|told| told.elapsed() >= TOLD) {
            line.told = Some(Instant::now());
            tell(&format!("  {text}\n"));
        }
    }

    pub(super) fn finished(&self, counts: &Counts, took: Duration) {
        self.note(&format!(
            "  all {} deliveries have their verdict after {:.1} s",
            counts.delivered(),
            took.as_secs_f64()
        ));
    }

    /// The audit, for a person.
    pub(super) fn audit(&self, report: &Report, counts: &Counts) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).close();
        show(&format!(
            "\n{BOLD}Audit{BOLD:#}: the topic against ledger, claims, dead letters and the provider's own record\n\n"
        ));
        let rows = [
            ("records written", report.produced, "orders, duplicates of them, and bad records of a dozen kinds"),
            ("distinct events", report.distinct_produced, "each must end as exactly one of the next three"),
            ("  applied", report.applied, "charged once and in the ledger"),
            ("  dead letters", report.dead_lettered, "kept whole in their own topic, with the reason"),
            ("  ignored", report.ignored, "for somebody else: other event types, tombstones"),
            ("deliveries", counts.delivered(), "how often the service was given a record, retries included"),
            ("duplicates", report.duplicates, "second deliveries, recognized and skipped"),
            ("retried", report.retried, "failed at first, and went round by a retry topic"),
        ];
        for (name, count, meaning) in rows {
            show(&format!("  {name:18} {count:>8}  {DIM}{meaning}{DIM:#}\n"));
        }
        let must_be_none = [
            ("lost", report.lost, "passed, and nowhere to be found"),
            ("charged twice", report.charged_twice, "orders that paid more than once"),
            ("unexpected", report.unexpected, "anything else that is not as the sample says"),
        ];
        for (name, count, meaning) in must_be_none {
            let style = if count == 0 { GOOD } else { BAD };
            show(&format!("  {style}{name:18} {count:>8}{style:#}  {DIM}{meaning}{DIM:#}\n"));
        }
        for finding in &report.findings {
            show(&format!("  {BAD}{}{BAD:#}: {}\n", finding.kind, finding.what));
        }
        let (style, verdict) = match report.is_clean() {
            true => (GOOD, "Nothing lost, nothing charged twice."),
            false => (BAD, "Something is wrong: see above."),
        };
        show(&format!("\n  {style}{verdict}{style:#}\n\n"));
    }

    pub(super) fn stays(&self) {
        self.note("Everything goes on running: send more, look around, and end it with Ctrl-C.");
    }
}

impl Line {
    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            tell("\n");
        }
    }
}

/// On standard error. If nobody reads it, nobody misses it.
fn tell(text: &str) {
    let mut err = anstream::stderr();
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

/// On standard output.
fn show(text: &str) {
    let mut out = anstream::stdout();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
