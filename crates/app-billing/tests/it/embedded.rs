//! The run with nothing configured, started as a newcomer starts it. It brings its own broker, database and provider, so
//! these tests need none of the run's.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sqlx::Connection;
use testbed::wait_until;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::world::SOON;

/// What would configure the service.
const CONFIGURES: [&str; 4] = ["KAFKA_BROKERS", "DATABASE_URL", "DATABASE_URL_FILE", "PAYMENT_URL"];

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_app-billing"));
    for name in CONFIGURES {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a sample to its end: its audit, and what it showed.
async fn sample(orders: &str, folder: &Path) -> Result<(Value, String)> {
    let audit = folder.join("audit.json");
    let path = audit.to_str().context("a path of ours")?;
    let run = program(&["--until-idle", "--orders", orders, "--audit-json", path]).output();
    let output = tokio::time::timeout(SOON, run).await.context("it does not end")??;
    let (shown, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(0), "{}\n{shown}\n{told}", output.status);
    Ok((serde_json::from_slice(&std::fs::read(audit)?)?, shown.into_owned()))
}

/// An embedded run that goes on.
struct Running {
    process: Child,
    says: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut process = program(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let says = process.stderr.take().context("it is piped")?;
        Ok(Self { process, says: BufReader::new(says).lines() })
    }

    /// Reads on until it says this; the line.
    async fn says(&mut self, text: &str) -> Result<String> {
        let wanted = async {
            while let Some(line) = self.says.next_line().await? {
                if line.contains(text) {
                    return Ok(line);
                }
            }
            anyhow::bail!("it ended without saying {text:?}")
        };
        tokio::time::timeout(SOON, wanted).await.with_context(|| format!("it does not say {text:?}"))?
    }

    /// The URL of its database and the folder of its server.
    async fn database(&mut self) -> Result<(String, PathBuf)> {
        let line = self.says("DATABASE_URL=").await?;
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("DATABASE_URL=")).context("named")?;
        let mut database = sqlx::PgConnection::connect(url).await?;
        let data: String = sqlx::query_scalar("show data_directory").fetch_one(&mut database).await?;
        database.close().await?;
        let folder = Path::new(&data).parent().context("it lies in a folder of its own")?;
        Ok((url.to_owned(), folder.to_owned()))
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let id = self.process.id().context("it runs")?.to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status()?;
        ensure!(sent.success(), "kill {signal} {id}: {sent}");
        Ok(())
    }

    async fn ended(&mut self) -> Result<ExitStatus> {
        Ok(tokio::time::timeout(SOON, self.process.wait()).await.context("it does not end")??)
    }
}

/// Nothing answers, and nothing lies about.
async fn gone(url: &str, folder: &Path) -> Result<()> {
    wait_until("the database to be gone", Duration::from_secs(20), async || {
        sqlx::PgConnection::connect(url).await.is_err() && !folder.exists()
    })
    .await
}

#[tokio::test]
async fn a_sample_ends_with_a_clean_audit_in_which_everything_happened() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (audit, shown) = sample("1000", folder.path()).await?;
    let count = |name: &str| audit[name].as_u64().with_context(|| format!("{name} in {audit}"));
    for none in ["lost", "charged_twice", "unexpected", "pending", "unknown"] {
        ensure!(count(none)? == 0, "{none}: {audit:#}");
    }
    let ends = count("applied")? + count("dead_lettered")? + count("ignored")?;
    ensure!(ends == count("distinct_produced")?, "{audit:#}");
    ensure!(count("produced")? == count("distinct_produced")? + count("duplicates")?, "{audit:#}");
    ensure!(count("applied")? >= 900 && count("duplicates")? >= 100, "{audit:#}");
    ensure!(count("dead_lettered")? > 0 && count("retried")? > 0 && count("ignored")? > 0, "{audit:#}");
    // Each record once, and each retry once more.
    ensure!(count("delivered")? >= count("produced")? + count("retried")?, "{audit:#}");
    ensure!(shown.contains("Nothing lost, nothing charged twice.") && !shown.contains('\u{1b}'), "{shown}");
    Ok(())
}

#[tokio::test]
async fn two_samples_at_once_do_not_meet() -> Result<()> {
    let folders = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (one, other) = tokio::try_join!(sample("100", folders.0.path()), sample("150", folders.1.path()))?;
    // 13 bad records and two events for one order, and an eighth of all orders once more.
    ensure!((&one.0["distinct_produced"], &one.0["produced"]) == (&115.into(), &127.into()), "{:#}", one.0);
    ensure!((&other.0["distinct_produced"], &other.0["produced"]) == (&165.into(), &183.into()), "{:#}", other.0);
    Ok(())
}

#[tokio::test]
async fn ctrl_c_drains_says_so_and_leaves_nothing() -> Result<()> {
    let mut run = Running::start(&["--orders", "50"])?;
    let (url, folder) = run.database().await?;
    ensure!(folder.exists());
    run.says("Everything goes on running").await?;
    run.signal("-INT")?;
    run.says("stopping: running work is finished").await?;
    run.says("stopped: everything settled is committed").await?;
    ensure!(run.ended().await?.code() == Some(0));
    gone(&url, &folder).await
}

#[tokio::test]
async fn ctrl_c_in_the_middle_of_a_sample_is_obeyed() -> Result<()> {
    let mut run = Running::start(&["--orders", "20000"])?;
    let (url, folder) = run.database().await?;
    run.says(" records: ").await?;
    run.signal("-INT")?;
    run.says("stopped: everything settled is committed").await?;
    ensure!(run.ended().await?.code() == Some(0));
    gone(&url, &folder).await
}

#[tokio::test]
async fn a_killed_run_leaves_no_process_and_no_folder() -> Result<()> {
    let mut run = Running::start(&[])?;
    let (url, folder) = run.database().await?;
    run.signal("-KILL")?;
    run.ended().await?;
    gone(&url, &folder).await
}

#[tokio::test]
async fn a_taken_port_is_left_to_whoever_has_it_unless_it_was_asked_for() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let run = program(&["--until-idle", "--orders", "1", "--http-addr", &address]).output();
    let output = tokio::time::timeout(SOON, run).await??;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && told.contains("set HTTP_ADDR to a free address"), "{told}");
    Ok(())
}

#[tokio::test]
async fn sample_orders_never_meet_a_real_provider() -> Result<()> {
    let run = program(&["--until-idle"]).env("PAYMENT_URL", "http://127.0.0.1:1").output();
    let output = tokio::time::timeout(SOON, run).await??;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && told.contains("--until-idle belongs to the embedded run"), "{told}");

    let run = program(&[]).env("PAYMENT_URL", "http://127.0.0.1:1").output();
    let output = tokio::time::timeout(SOON, run).await??;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && told.contains("not set: KAFKA_BROKERS, DATABASE_URL"), "{told}");
    Ok(())
}

#[tokio::test]
async fn an_audit_that_cannot_be_written_is_told_before_anything_starts() -> Result<()> {
    let run = program(&["--until-idle", "--audit-json", "/no/such/folder/audit.json"]).output();
    let output = tokio::time::timeout(Duration::from_secs(10), run).await??;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && told.contains("--audit-json: cannot write to /no/such"), "{told}");
    ensure!(!told.contains("started"), "{told}");
    Ok(())
}
