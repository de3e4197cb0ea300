//! Consumers made of the reusable crates alone, in this process: a handler that only counts, in a table of its own.
//! It shows the crates without the service (D1), and lets two consumers own the same records at once.

use std::sync::Arc;
use std::time::Duration;

use adapters_kafka::{KafkaPublisher, KafkaSettings, KafkaStream, TopicPlan, ensure_topics};
use adapters_tokio::TokioRuntime;
use anyhow::{Result, ensure};
use async_trait::async_trait;
use core_delivery::claim::{Claimed, ConsumerGroup};
use core_delivery::delivery::{Consumer, ConsumerError, ConsumerSettings, Health, StormLimits, Tier, Topology};
use core_delivery::ports::{EventHandler, HandlerError, StoreError};
use core_delivery::record::Topic;
use core_order::{Currency, Event, OrderConfirmed, OrderConfirmedDecoder};
use infra_postgres::{PgSettings, PgStore, PgUnit, connect, store_error};
use sandbox::provider::ProviderSettings;
use sqlx::PgPool;
use testbed::clients::sample_orders;
use testbed::{Backend, wait_until};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::world::{SOON, World};

/// Counts orders through the unit that holds the claim.
struct CountOrders;

#[async_trait]
impl EventHandler<OrderConfirmed, PgUnit> for CountOrders {
    type Receipt = ();

    async fn perform(&self, _order: &Claimed<OrderConfirmed>) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn record(&self, unit: &mut PgUnit, done: &[(Claimed<OrderConfirmed>, ())]) -> Result<(), StoreError> {
        let orders: Vec<&str> = done.iter().map(|(claimed, ())| claimed.event().key()).collect();
        sqlx::query("insert into counted (order_id) select unnest($1::text[])")
            .bind(&orders)
            .execute(unit.connection())
            .await
            .map_err(|error| store_error("count orders", error))?;
        Ok(())
    }
}

/// A consumer that runs.
struct Counting {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ConsumerError>>,
}

impl Counting {
    /// Reads as a member of `members` and claims under `group`, which are the same but where a test wants two owners
    /// of one record.
    async fn start(world: &World, members: &str, group: &str) -> Result<Self> {
        let settings = KafkaSettings::new(Backend::from_env()?.kafka_brokers);
        let source = Topic::new(world.topic.as_str());
        let delay = Duration::from_secs(1);
        let plan = TopicPlan::new(&source, members, &[delay]);
        if !world.creates_copies(plan.copies().map(Topic::as_str)).await? {
            ensure_topics(&settings, &plan, true).await?;
        }
        let topology = Topology {
            group: ConsumerGroup::new(group),
            source,
            tiers: plan.retries.into_iter().map(|topic| Tier { topic, delay }).collect(),
            dead_letters: plan.dead_letter,
        };
        let (stream, control) = KafkaStream::start(&settings, members, &topology.consumed())?;
        let consumer = Consumer {
            settings: ConsumerSettings {
                topology,
                batch_max: 50,
                calls_max: 8,
                straggler_deadline: Duration::from_secs(1),
                storm: StormLimits::default(),
                clock_skew: Duration::from_secs(300),
            },
            store: Arc::new(PgStore::new(pool(world).await?, pool(world).await?)),
            handler: Arc::new(CountOrders),
            decoder: Arc::new(OrderConfirmedDecoder::new(Currency::EUR)),
            publisher: Arc::new(KafkaPublisher::new(&settings)?),
            runtime: Arc::new(TokioRuntime::current()),
            health: Health::default(),
        };
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(consumer.run(stream, control, async { drop(stopped.await) }));
        Ok(Self { stop, running })
    }

    async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(self.running.await??)
    }
}

async fn pool(world: &World) -> Result<PgPool> {
    Ok(connect(&PgSettings::new(world.database_url.as_str())).await?)
}

/// The table that the handler counts in, and the counts: all rows, distinct orders.
async fn create_table(pool: &PgPool) -> Result<()> {
    sqlx::query("create table counted (order_id text not null)").execute(pool).await?;
    Ok(())
}

async fn counted(pool: &PgPool) -> Result<(i64, i64)> {
    Ok(sqlx::query_as("select count(*), count(distinct order_id) from counted").fetch_one(pool).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_groups_on_one_database_each_handle_every_event_once() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(40);
    world.send(orders.iter().chain(&orders)).await?;
    let _billing = world.service().await?;
    world.settled(40).await?;

    let pool = pool(&world).await?;
    create_table(&pool).await?;
    let group = format!("analytics-{}", world.group);
    let analytics = Counting::start(&world, &group, &group).await?;
    wait_until("the second group's claims", SOON, async || {
        world.ledger.claim_count(&group).await.is_ok_and(|count| count == 40)
            && world.kafka.lag(&group, &world.topic).await.is_ok_and(|lag| lag == 0)
    })
    .await?;
    analytics.stop().await?;
    let counted = counted(&pool).await?;
    ensure!(counted == (40, 40), "{counted:?}");
    world.charged_exactly(&orders).await
}

/// Two owners of every partition at once, as after a lost session: they read every record both, and the database
/// alone decides who was first.
#[tokio::test(flavor = "multi_thread")]
async fn two_owners_of_the_same_records_apply_each_event_once() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(1_000);
    world.send(&orders).await?;
    let pool = pool(&world).await?;
    infra_postgres::migrate_delivery(&pool, infra_postgres::PartitionPlan::default(), now()).await?;
    create_table(&pool).await?;

    let (one, two) = (format!("{}-one", world.group), format!("{}-two", world.group));
    let owners = tokio::try_join!(Counting::start(&world, &one, "shared"), Counting::start(&world, &two, "shared"))?;
    wait_until("both to have read everything", SOON, async || {
        let lag = tokio::try_join!(world.kafka.lag(&one, &world.topic), world.kafka.lag(&two, &world.topic));
        lag.is_ok_and(|lag| lag == (0, 0))
    })
    .await?;
    owners.0.stop().await?;
    owners.1.stop().await?;
    let counted = counted(&pool).await?;
    ensure!(counted == (1_000, 1_000), "{counted:?}");
    ensure!(world.ledger.claim_count("shared").await? == 1_000);
    Ok(())
}

fn now() -> core_delivery::event::UnixMillis {
    use core_delivery::ports::Runtime;
    TokioRuntime::current().now()
}
