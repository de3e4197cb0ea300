//! Orders that kill whoever charges them, and processes that are killed by somebody else: the first are found and given
//! up, and the others cost no order anything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use core_order::{Event, OrderConfirmed};
use sandbox::provider::ProviderSettings;
use testbed::clients::{Service, sample_orders};
use testbed::wait_until;

use crate::trial::stopped;
use crate::world::{World, header};

/// How long a life may take to end or to be through.
const LIFE: Duration = Duration::from_secs(150);

/// Half a batch, halved until one order is left, are four; one death in full company, one that names the order, three that
/// count. Twice as many would be a search that does not converge.
const DEATHS: usize = 20;

const SETTINGS: [(&str, &str); 4] =
    [("KAFKA_SESSION_TIMEOUT", "3s"), ("DRAIN_LIMIT", "2s"), ("DATABASE_CONNECTIONS", "4"), ("BATCH_MAX", "16")];

async fn prepared(partitions: i32, provider: ProviderSettings, orders: &[OrderConfirmed]) -> Result<World> {
    let world = World::new(partitions, provider).await?;
    let copies = crate::world::TIERS.map(|tier| world.retry_topic(tier)).into_iter().chain([world.dead_letter_topic()]);
    world.creates_copies(copies).await?;
    world.send(orders).await?;
    Ok(world)
}

/// Starts the service again whenever it has died, until so many orders are charged and nothing is left; how often it died.
async fn live_on(world: &World, more: (&str, &str), charges: usize) -> Result<usize> {
    let settings = [SETTINGS.as_slice(), &[more]].concat();
    for deaths in 0..DEATHS {
        // One that dies before it serves has died as well.
        let Ok(service) = world.service_with(&settings).await else { continue };
        let is_through = async || {
            world.ledger.charge_count().await.is_ok_and(|count| count == charges) && world.lag().await == Some(0)
        };
        let ended = wait_until("an end", LIFE, async || service.ended().is_some() || is_through().await).await;
        if let Err(error) = ended {
            let readiness = service.readiness().await;
            return Err(error.context(format!("after {deaths} deaths; {readiness:?}; {}", service.log_tail())));
        }
        if service.ended().is_none() {
            stopped(service).await?;
            return Ok(deaths);
        }
        println!("death {}: {}", deaths + 1, last_word(&service));
    }
    bail!("it died {DEATHS} times and would go on dying")
}

/// What the service said of the search.
fn last_word(service: &Service) -> String {
    let log = service.log();
    let said = log.lines().filter(|line| line.contains("died while it owned it") || line.contains("\"ERROR\""));
    said.collect::<Vec<_>>().join("\n  ")
}

/// Nobody charges it, everything else is charged once, and it is a dead letter that says what is known.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_kills_whoever_charges_it_is_a_dead_letter_and_all_others_are_charged() -> Result<()> {
    let orders = sample_orders(60);
    let deadly = &orders[25];
    let world = prepared(2, ProviderSettings::default(), &orders).await?;
    let deaths = live_on(&world, ("CRASH_BEFORE_CHARGE", &deadly.order_id().to_string()), 59).await?;
    println!("{deaths} deaths");

    let letters = world.dead_letters().await?;
    let classes: Vec<_> = letters.iter().map(|letter| header(letter, "delivery-error-class")).collect();
    ensure!(classes == [Some("in_doubt".to_owned())], "{classes:?}");
    let text = header(&letters[0], "delivery-error-text").unwrap_or_default();
    ensure!(text.contains("kills the process"), "{text}");
    ensure!(letters[0].payload.as_deref() == Some(&*deadly.to_json()), "the letter is the order's own record");

    let record = world.provider.record();
    ensure!(record.orders_charged_twice().is_empty(), "{:?}", record.orders_charged_twice());
    let mut charged: Vec<String> = record.succeeded().map(|charge| charge.order_id.to_string()).collect();
    let others = orders.iter().filter(|order| order.id() != deadly.id());
    let mut expected: Vec<String> = others.map(|order| order.order_id().to_string()).collect();
    charged.sort();
    expected.sort();
    ensure!(charged == expected, "{charged:?}");
    let rows = world.ledger.charges().await?;
    let reserved: Vec<_> = rows.iter().filter(|row| !row.charged).map(|row| row.event_id.to_string()).collect();
    ensure!(reserved == [deadly.id().to_string()], "its order stays reserved while it is in doubt: {reserved:?}");
    Ok(())
}

/// The provider has charged it, so it is charged: nobody sends it again, and nobody writes a letter.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_kills_after_its_charge_is_settled_by_look_up() -> Result<()> {
    let orders = sample_orders(20);
    let world = prepared(1, ProviderSettings::default(), &orders).await?;
    // Every start has both: one variable with the order, and the look-up by the provider's settings.
    let deadly = orders[7].order_id().to_string();
    let settings = [SETTINGS.as_slice(), &[("PAYMENT_LOOKUP", "on"), ("CRASH_AFTER_CHARGE", &deadly)]].concat();
    for deaths in 0..DEATHS {
        let Ok(service) = world.service_with(&settings).await else { continue };
        let is_through =
            async || world.ledger.charge_count().await.is_ok_and(|count| count == 20) && world.lag().await == Some(0);
        wait_until("an end", LIFE, async || service.ended().is_some() || is_through().await).await?;
        if service.ended().is_none() {
            println!("{deaths} deaths");
            stopped(service).await?;
            ensure!(world.dead_letters().await?.is_empty());
            return world.charged_exactly(&orders).await;
        }
    }
    bail!("it died {DEATHS} times and would go on dying")
}

/// Killed by somebody else, over and over and at any instant: no order is accused of it.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_killed_from_outside_cost_no_order_a_letter() -> Result<()> {
    let orders = sample_orders(600);
    let slow = ProviderSettings { latency_ms: 20, ..ProviderSettings::default() };
    let world = prepared(2, slow, &orders).await?;
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    println!("seed {seed}");
    for _ in 0..14 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let more = (seed >> 16) % 30;
        let mut service = world.service_with(&SETTINGS).await?;
        let enough = world.provider.summary().calls + u64::from(more);
        world.until("calls", async || world.provider.summary().calls >= enough).await?;
        service.kill9().await?;
    }
    let service = world.service_with(&SETTINGS).await?;
    world.settled(600).await?;
    stopped(service).await?;
    ensure!(world.dead_letters().await?.is_empty());
    world.charged_exactly(&orders).await
}
