//! (c) The whole service in a process of its own, charging each event through the provider in another; it is looked at
//! from outside only.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::{
    clients::{Ledger, Service, run_to_end},
    wait_until,
};
use tokio::time::{Instant, sleep};

use crate::{
    cpu::Processes,
    world::{Measured, Running, TOPIC, World},
};

const GROUP: &str = "billing-order-confirmed";
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(900);
const MIGRATE_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn run(world: &World, events: usize, batch_max: usize, calls_max: u32) -> Result<Measured> {
    let database = world.database("billing").await?;
    let migrated = run_to_end(&["migrate"], &[("DATABASE_URL", &database)], MIGRATE_LIMIT).await?;
    ensure!(migrated.status.success(), "no schema: {}", String::from_utf8_lossy(&migrated.stderr));
    let ledger = Ledger::connect(&database).await?;
    let mut service = Service::start(&[
        ("KAFKA_BROKERS", &world.brokers()),
        ("KAFKA_TOPIC", TOPIC),
        ("KAFKA_GROUP", GROUP),
        ("DATABASE_URL", &database),
        ("PAYMENT_URL", world.provider.url()),
        ("BATCH_MAX", &batch_max.to_string()),
        ("CALLS_MAX", &calls_max.to_string()),
    ])
    .await?;
    let consumer = service.process_id().context("the service has no process")?;
    let measured = follow(world, &service, &ledger, Processes { consumer, ..world.processes }, events).await?;

    let settled = async || world.assert_settled(GROUP).await.is_ok();
    wait_until("the offsets to be committed", STOP_LIMIT, settled).await?;
    service.terminate()?;
    let status = service.wait(STOP_LIMIT).await?;
    ensure!(status.success(), "the service ended with {status}:\n{}", service.log_tail());
    let charged = world.provider.summary().await?.charges;
    ensure!(charged == u64::try_from(events)?, "the provider charged {charged} times for {events} events");
    Ok(measured)
}

/// From the first call that the provider sees to the last charge in the ledger. The provider's count is cheap to ask
/// for; the ledger's is not, so it comes last.
async fn follow(
    world: &World,
    service: &Service,
    ledger: &Ledger,
    processes: Processes,
    events: usize,
) -> Result<Measured> {
    let until = Instant::now() + LIMIT;
    let goes_on = || {
        ensure!(service.ended().is_none(), "the service ended by itself; its log ends:\n{}", service.log_tail());
        ensure!(Instant::now() < until, "not done within {LIMIT:?}; the service's log ends:\n{}", service.log_tail());
        Ok(())
    };
    while world.provider.summary().await?.calls == 0 {
        goes_on()?;
        sleep(Duration::from_millis(10)).await;
    }
    let running = Running::begin(processes)?;
    while world.provider.summary().await?.charges < u64::try_from(events)? {
        goes_on()?;
        sleep(Duration::from_millis(100)).await;
    }
    while ledger.charge_count().await? < events {
        goes_on()?;
        sleep(Duration::from_millis(20)).await;
    }
    running.end(events)
}
