//! Reservations of orders on a real PostgreSQL: who waits for whom, and who is refused (a second event for an order
//! never charges it). No Kafka, and no provider is called.

use std::sync::Arc;
use std::time::Duration;

use adapters_tokio::TokioRuntime;
use anyhow::{Context, Result, ensure};
use app_billing::config::PaymentConflict;
use app_billing::conflicts::Conflicts;
use app_billing::doubt::KeyMemory;
use app_billing::handler::ChargeOrders;
use app_billing::ledger::{BillingStore, BillingUnit, migrate_ledger};
use async_trait::async_trait;
use core_delivery::testing::claimed;
use core_order::{
    Admission, ChargeReceipt, Claimed, Currency, Event, EventHandler, GatewayError, LookUp, Money,
    ORDER_ALREADY_CHARGED, Order, OrderConfirmed, PaymentGateway, StoreError, UnitOfWork, UnitOfWorkFactory,
};
use infra_postgres::{PgSettings, PgStore, connect};
use sqlx::{Connection, PgConnection, PgPool};
use testbed::{Backend, unique_name, wait_until};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::world::SOON;

/// Less than the sessions' lock timeout of five seconds: who would wait for a lock is not answered within it.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Reserving happens before any call.
struct NeverCalled;

#[async_trait]
impl PaymentGateway for NeverCalled {
    async fn charge(&self, _: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, GatewayError> {
        unreachable!("nothing is performed here")
    }

    async fn look_up(&self, _: &Claimed<OrderConfirmed>) -> Result<LookUp, GatewayError> {
        unreachable!("nothing is performed here")
    }
}

type Admissions = Result<Vec<Admission>, StoreError>;

/// A database with the ledger, and the handler that reserves in it.
struct LedgerWorld {
    store: BillingStore,
    handler: Arc<ChargeOrders<NeverCalled>>,
    observer: PgPool,
}

impl LedgerWorld {
    async fn new() -> Result<Self> {
        let admin_url = Backend::from_env()?.database_url;
        let name = unique_name("ledger");
        let mut admin = PgConnection::connect(&admin_url).await?;
        sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}"))).execute(&mut admin).await?;
        let (server, _) = admin_url.rsplit_once('/').context("the URL names a database")?;
        let settings = PgSettings::new(format!("{server}/{name}"));
        let (units, observer) = (connect(&settings).await?, connect(&settings).await?);
        migrate_ledger(&observer).await?;
        let minute = Duration::from_secs(60);
        let handler = ChargeOrders::new(
            Arc::new(NeverCalled),
            Conflicts::new(PaymentConflict::Done, minute),
            KeyMemory::new(24 * 60 * minute, minute, minute),
            Arc::new(TokioRuntime::current()),
        );
        Ok(Self { store: BillingStore(PgStore::new(units, observer.clone())), handler: Arc::new(handler), observer })
    }

    async fn begin(&self) -> Result<BillingUnit> {
        Ok(self.store.begin().await?)
    }

    async fn admit(&self, unit: &mut BillingUnit, events: &[Claimed<OrderConfirmed>]) -> Admissions {
        self.handler.admit(unit, events).await
    }

    /// Begins to admit the events in this unit, and returns when it waits for a lock; the task hands the unit back.
    async fn admit_and_wait(
        &self,
        mut unit: BillingUnit,
        events: Vec<Claimed<OrderConfirmed>>,
    ) -> Result<JoinHandle<(BillingUnit, Admissions)>> {
        let (handler, waiting) = (Arc::clone(&self.handler), self.waiting().await?);
        let admitting = tokio::spawn(async move {
            let admissions = handler.admit(&mut unit, &events).await;
            (unit, admissions)
        });
        wait_until("the unit waits", SOON, async || self.waiting().await.is_ok_and(|now| now == waiting + 1)).await?;
        Ok(admitting)
    }

    /// How many statements wait for a lock.
    async fn waiting(&self) -> Result<i64> {
        let waiting = "select count(*) from pg_stat_activity \
                       where datname = current_database() and wait_event_type = 'Lock'";
        Ok(sqlx::query_scalar(waiting).fetch_one(&self.observer).await?)
    }
}

/// A new event for an order of this name.
fn event_for(order: &str) -> Result<Claimed<OrderConfirmed>> {
    let order = Order {
        id: order.parse()?,
        customer: "c-1".parse()?,
        total: Money { minor_units: 1250, currency: Currency::EUR },
    };
    Ok(claimed(OrderConfirmed::from_order(&order, std::time::SystemTime::now().into())?))
}

fn events_for(orders: &[&str]) -> Result<Vec<Claimed<OrderConfirmed>>> {
    orders.iter().map(|order| event_for(order)).collect()
}

/// A unit that waits for an order holds nothing that sorts behind it, in whatever sequence its events were delivered.
/// So whoever holds what it waits for never waits for it in turn.
#[tokio::test]
async fn orders_are_reserved_in_sorted_order() -> Result<()> {
    let world = LedgerWorld::new().await?;
    let mut holder = world.begin().await?;
    ensure!(world.admit(&mut holder, &events_for(&["b"])?).await? == [Admission::Proceed]);
    let waiting = world.admit_and_wait(world.begin().await?, events_for(&["z", "c", "a", "b"])?).await?;

    let mut other = world.begin().await?;
    let free = timeout(AT_ONCE, world.admit(&mut other, &events_for(&["z", "c"])?)).await;
    ensure!(free.context("the unit that waits for b holds z or c")?? == [Admission::Proceed, Admission::Proceed]);
    drop(other);
    drop(holder);
    let (_, admissions) = timeout(SOON, waiting).await??;
    ensure!(admissions? == vec![Admission::Proceed; 4], "once nobody holds them, all four are its own");
    Ok(())
}

/// Two units that want the same orders in opposite sequence, each held up in the middle: without an order they would
/// hold one of the two each and wait for the other's until the server ends it.
#[tokio::test]
async fn units_that_reserve_the_same_orders_in_opposite_sequence_take_turns() -> Result<()> {
    let world = LedgerWorld::new().await?;
    let mut holder = world.begin().await?;
    world.admit(&mut holder, &events_for(&["m"])?).await?;
    let one = world.admit_and_wait(world.begin().await?, events_for(&["a", "m", "z"])?).await?;
    let other = world.admit_and_wait(world.begin().await?, events_for(&["z", "m", "a"])?).await?;
    drop(holder);
    let (unit, admissions) = timeout(SOON, one).await??;
    ensure!(admissions? == vec![Admission::Proceed; 3]);
    drop(unit);
    let (_, admissions) = timeout(SOON, other).await??;
    ensure!(admissions? == vec![Admission::Proceed; 3], "the first rolled back");
    Ok(())
}

#[tokio::test]
async fn a_second_event_for_an_order_waits_and_is_refused_when_the_first_commits() -> Result<()> {
    let world = LedgerWorld::new().await?;
    let (first, second) = (event_for("o-1")?, event_for("o-1")?);
    let first_id = first.event().id().to_string();
    let mut unit = world.begin().await?;
    ensure!(world.admit(&mut unit, std::slice::from_ref(&first)).await? == [Admission::Proceed]);
    let waiting = world.admit_and_wait(world.begin().await?, vec![second]).await?;
    world.handler.record(&mut unit, &[(first, ChargeReceipt { provider_ref: None })]).await?;
    unit.commit().await?;
    let (_, admissions) = timeout(SOON, waiting).await??;
    let admissions = admissions?;
    let [Admission::Refused(refusal)] = &admissions[..] else { anyhow::bail!("admitted: {admissions:?}") };
    ensure!(refusal.class == ORDER_ALREADY_CHARGED);
    ensure!(refusal.reason.contains(&first_id), "it names the first: {}", refusal.reason);
    Ok(())
}

#[tokio::test]
async fn a_second_event_for_an_order_waits_and_proceeds_when_the_first_rolls_back() -> Result<()> {
    let world = LedgerWorld::new().await?;
    let mut unit = world.begin().await?;
    ensure!(world.admit(&mut unit, &events_for(&["o-1"])?).await? == [Admission::Proceed]);
    let waiting = world.admit_and_wait(world.begin().await?, events_for(&["o-1"])?).await?;
    drop(unit);
    let (unit, admissions) = timeout(SOON, waiting).await??;
    ensure!(admissions? == [Admission::Proceed]);
    unit.commit().await?;
    Ok(())
}

/// A reservation that a unit left tells every later delivery of its event that a try of it may have moved the money.
#[tokio::test]
async fn a_reservation_that_an_earlier_unit_left_puts_the_event_in_doubt() -> Result<()> {
    let world = LedgerWorld::new().await?;
    let event = event_for("o-1")?;
    let mut unit = world.begin().await?;
    ensure!(world.admit(&mut unit, std::slice::from_ref(&event)).await? == [Admission::Proceed]);
    unit.commit().await?;
    let mut later = world.begin().await?;
    ensure!(world.admit(&mut later, std::slice::from_ref(&event)).await? == [Admission::ProceedInDoubt]);
    let admissions = world.admit(&mut later, &events_for(&["o-1"])?).await?;
    ensure!(matches!(&admissions[..], [Admission::Refused(_)]), "another event of the order: {admissions:?}");
    Ok(())
}
