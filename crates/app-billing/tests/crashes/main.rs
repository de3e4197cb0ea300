//! Crashes at named points: on each path of an event the process ends at each point that lies there, as if it had been
//! killed in that instant; it is looked at while it is dead, started again, and audited. Only whole processes are
//! started, and what they did is read past them.

mod deadly;
mod look;
mod matrix;
mod page;
mod scene;
mod trial;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "the scenarios use more of it")]
mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use core_delivery::crash::CrashPoint;
use futures::stream::{self, StreamExt};
use testbed::clients::run_to_end;

use matrix::{Cell, Path, cell, trials};
use page::Page;
use trial::Trial;

/// How many worlds there are at once: most of the time of each is a dead member's session.
const AT_ONCE: usize = 12;

/// Runs only the trials whose name (`path/point:hit`) contains this, and writes no page.
const ONLY: &str = "TEST_CRASHES";

/// D-1, D-2: wherever the process ends, nothing is lost and nothing is done twice. And what the matrix calls not on a
/// path is not met there: a run with all of these points armed ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_any_path_loses_nothing_and_does_nothing_twice() -> Result<()> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let begun = Instant::now();
    let chosen = trials().into_iter().filter(|trial| trial.to_string().contains(&only));
    let running = chosen.map(async |trial| {
        let outcome = trial.run().await;
        (trial, outcome)
    });
    let mut running = stream::iter(running).buffer_unordered(AT_ONCE);
    let mut page = Page::default();
    while let Some((trial, outcome)) = running.next().await {
        if let Err(error) = &outcome {
            println!("{trial} FAILED: {error:?}\n");
        }
        page.add(trial, outcome.is_ok());
    }
    ensure!(page.trials() > 0, "{ONLY}={only} names no trial");
    println!("{} trials in {:.0} s", page.trials(), begun.elapsed().as_secs_f32());
    if only.is_empty() {
        page.write()?;
    }
    let failed = page.failed();
    ensure!(failed.is_empty(), "{} of {} trials failed: {}", failed.len(), page.trials(), failed.join(", "));
    Ok(())
}

/// What the guarantees say is what is tried here, cell by cell.
#[test]
fn the_guarantees_have_the_matrix_that_is_tried() -> Result<()> {
    page::is_in_the_guarantees()
}

/// Each point is tried on some path, and each cell without a trial says why.
#[test]
fn every_point_lies_on_a_path() {
    for &point in CrashPoint::ALL {
        assert!(Path::ALL.iter().any(|&path| matches!(cell(path, point), Cell::Tried(_))), "{}", point.name());
    }
    let names: Vec<String> = trials().iter().map(Trial::to_string).collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len());
}

/// A name that is not known would otherwise be a trial that tries nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_point_that_is_not_known_is_refused_with_all_that_are() -> Result<()> {
    let output = run_to_end(&["run"], &[("CRASH_AT", "after_lunch")], Duration::from_secs(30)).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "{:?}: {said}", output.status);
    ensure!(said.contains("after_lunch") && CrashPoint::ALL.iter().all(|point| said.contains(point.name())), "{said}");
    Ok(())
}
