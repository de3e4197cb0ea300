//! The course of one run: load, kill and start again at marks of progress, wait for the end, stop in order. It
//! judges nothing but the last exit.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use core_order::{Event, OrderConfirmed};
use rand::{Rng, SeedableRng, rngs::StdRng};
use testbed::clients::duplicated;
use tokio::time::sleep;

use crate::{
    watch::Watch,
    world::{TOPIC, World},
};

/// How long the stop in order may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// The longest pause between a mark and its kill, so that kills meet all phases of a unit.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is done to the service.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kills: u32,
    pub(crate) duplicates: f64,
    pub(crate) seed: u64,
    pub(crate) batch_max: u32,
}

/// What was done.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) deliveries: usize,
    /// How many orders were charged at each kill.
    pub(crate) kills: Vec<usize>,
    /// From the first start to the stop, restarts included.
    pub(crate) took: Duration,
}

/// Ends when every event is charged, everything is settled and the service has stopped in order.
pub(crate) async fn run(world: &World, plan: &Plan, events: &[OrderConfirmed]) -> Result<Course> {
    let sequence = duplicated(events, plan.duplicates, plan.seed);
    let records: Vec<_> = sequence.into_iter().map(|event| (event.key().to_owned(), event.to_json())).collect();
    let deliveries = records.len();
    let kafka = world.kafka.clone();
    let load = tokio::spawn(async move { kafka.produce_all(TOPIC, records).await });

    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut watch = Watch::new(world, events.len());
    let mut service = world.start_service().await?;
    let mut kills = Vec::new();
    for (number, mark) in (0..).zip(marks(events.len(), plan.kills, &mut random)) {
        // At least one new charge since the last kill: a kill of a service that has not begun shows nothing.
        let mark = mark.max(watch.charged + 1);
        let reached = watch.until_charged(&service, mark).await;
        world.keep_log(number, &service)?;
        reached?;
        sleep(random.random_range(Duration::ZERO..LONGEST_PAUSE)).await;
        service.kill9().await?;
        world.keep_log(number, &service)?;
        watch.kills += 1;
        watch.charged = world.ledger.charge_count().await?;
        kills.push(watch.charged);
        service = world.start_service().await?;
    }

    let finished = async {
        watch.until_charged(&service, events.len()).await?;
        ensure!(load.await?? == deliveries, "not everything was loaded");
        watch.until_settled(&service).await
    };
    let finished = finished.await;
    world.keep_log(plan.kills, &service)?;
    finished?;
    if let Some(early) = kills.iter().position(|charged| *charged >= events.len()) {
        bail!("everything was charged before kill {}: the load is too small for so many kills", early + 1);
    }
    service.terminate()?;
    let status = service.wait(STOP_LIMIT).await;
    world.keep_log(plan.kills, &service)?;
    let status = status.context("it did not stop in order")?;
    ensure!(status.success(), "it did not stop in order: {status}; its log ends:\n{}", service.log_tail());
    Ok(Course { deliveries, kills, took: watch.elapsed() })
}

/// Where the kills come: spread over the load, none quite at its place.
fn marks(orders: usize, kills: u32, random: &mut StdRng) -> Vec<usize> {
    let kills = usize::try_from(kills).expect("at most a few thousand kills");
    let interval = orders / (kills + 1);
    (1..=kills).map(|number| number * interval + random.random_range(0..=interval / 4)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_are_spread_over_the_load() {
        let marks = marks(100_000, 20, &mut StdRng::seed_from_u64(1));
        assert_eq!(marks.len(), 20);
        assert!(marks.is_sorted());
        assert!(marks[0] < 10_000 && marks[19] > 90_000 && marks[19] < 100_000, "{marks:?}");
    }
}
