//! The removal of old claims beside a consumer at full intake: its events per second before, while and after claims are
//! removed, by each of the two variants in turn. What is measured is reported and never judged.

mod figures;
mod old_claims;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use infra_postgres::{Removal, Retention, delete_expired_claims, drop_expired_partitions};
use sqlx::PgPool;
use testbed::{clients::sample_orders, wait_until};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    consuming::Consuming,
    table::Database,
    world::{Running, World},
};
pub(crate) use figures::Figures;
use figures::{Phase, Run, Window};
use old_claims::OldClaims;

/// How many events are made at once, on their way to the topic.
const MADE_AT_ONCE: usize = 10_000;
/// How many rows the deletion removes in one transaction.
const DELETED_AT_ONCE: u32 = 10_000;
/// How long a window is; the last one of a removal ends with it.
const WINDOW: Duration = Duration::from_secs(5);
/// How many windows there are without removal, before and after.
const WINDOWS_WITHOUT: usize = 3;
/// How long the consumer runs before anything is measured, from its first commit on.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long it may take until the first commit.
const FIRST_COMMIT: Duration = Duration::from_secs(60);

/// How long the end of a removal may go unseen.
const LOOK: Duration = Duration::from_millis(10);

/// How the claims are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Drop,
    Delete,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) events: usize,
    pub(crate) old_claims: u64,
    pub(crate) rounds: u32,
    pub(crate) batch_max: usize,
}

/// Each round has a run of each variant. All runs consume the same topic, as a group of their own, and use one database
/// that is emptied before each.
pub(crate) async fn run(world: &World, plan: Plan) -> Result<Figures> {
    let make = |begin| sample_orders(MADE_AT_ONCE.min(plan.events - begin));
    world.load((0..plan.events).step_by(MADE_AT_ONCE).flat_map(make)).await?;
    let url = world.database("expiry").await?;
    let database = Database::prepare(&url).await?;
    let mut figures = Figures::default();
    for round in 1..=plan.rounds {
        for variant in Variant::ALL {
            let group = format!("bench-{variant:?}-{round}").to_lowercase();
            let old = OldClaims::prepare(&url, &database.pool, &group, plan.old_claims).await?;
            world.rest().await?;
            figures.add(measure(world, &database, &group, plan, variant, &old).await?);
        }
    }
    Ok(figures)
}

async fn measure(
    world: &World,
    database: &Database,
    group: &str,
    plan: Plan,
    variant: Variant,
    old: &OldClaims,
) -> Result<Run> {
    let consuming = Consuming::start(world, database, group, plan.events, plan.batch_max).await?;
    wait_until("the first commit", FIRST_COMMIT, async || consuming.progress.committed() > 0).await?;
    sleep(WARM_UP).await;
    let mut windows = Vec::new();
    for _ in 0..WINDOWS_WITHOUT {
        windows.push(window(world, &consuming, Phase::Before, sleep(WINDOW)).await?);
    }
    let removal = tokio::spawn(remove(database.pool.clone(), variant, old.retention));
    while !removal.is_finished() {
        windows.push(window(world, &consuming, Phase::During, end_of(&removal, WINDOW)).await?);
    }
    let took = removal.await??;
    for _ in 0..WINDOWS_WITHOUT {
        windows.push(window(world, &consuming, Phase::After, sleep(WINDOW)).await?);
    }

    let progress = Arc::clone(&consuming.progress);
    consuming.stop().await?;
    let left = old.left(&database.pool).await?;
    let (claims, rows) = database.counts().await?;
    let (new, committed) = (claims - left, i64::try_from(progress.committed())?);
    ensure!((new, rows) == (committed, committed), "claims and rows are {new} and {rows}, not {committed} each");
    let removed = old.stored - u64::try_from(left)?;
    ensure!(removed >= plan.old_claims, "{removed} of {} old claims were removed", plan.old_claims);
    Ok(Run { variant, windows, removed, took })
}

/// What the consumer did until `end`.
async fn window(world: &World, consuming: &Consuming, phase: Phase, end: impl Future<Output = ()>) -> Result<Window> {
    let running = Running::begin(world.processes)?;
    let before = consuming.progress.committed();
    end.await;
    let measured = running.end(consuming.progress.committed() - before)?;
    consuming.assert_busy()?;
    Ok(Window { phase, measured })
}

/// The end of the task, or of the limit.
async fn end_of<T>(task: &JoinHandle<T>, limit: Duration) {
    let until = Instant::now() + limit;
    while !task.is_finished() && Instant::now() < until {
        sleep(LOOK).await;
    }
}

/// One removal, as housekeeping does it; returns how long it took.
async fn remove(pool: PgPool, variant: Variant, retention: Retention) -> Result<Duration> {
    let begun = Instant::now();
    let turn = match variant {
        Variant::Drop => matches!(drop_expired_partitions(&pool, retention).await?, Removal::Done(_)),
        Variant::Delete => {
            let goes_on = |_: &_| ControlFlow::Continue(());
            matches!(delete_expired_claims(&pool, retention, DELETED_AT_ONCE, goes_on).await?, Removal::Done(_))
        }
    };
    ensure!(turn, "somebody else removes claims");
    Ok(begun.elapsed())
}
