//! A second group on the same database (D1), made of the reusable crates alone: a handler that only counts.

use std::sync::Arc;
use std::time::Duration;

use adapters_kafka::{KafkaPublisher, KafkaSettings, KafkaStream, TopicPlan, ensure_topics};
use adapters_tokio::TokioRuntime;
use anyhow::{Result, ensure};
use async_trait::async_trait;
use core_delivery::claim::{Claimed, ConsumerGroup};
use core_delivery::delivery::{Consumer, ConsumerSettings, Health, Tier, Topology};
use core_delivery::ports::{EventHandler, HandlerError, StoreError};
use core_delivery::record::Topic;
use core_order::{Currency, Event, OrderConfirmed, OrderConfirmedDecoder};
use infra_postgres::{PgSettings, PgStore, PgUnit, connect, store_error};
use sandbox::provider::ProviderSettings;
use testbed::clients::sample_orders;
use testbed::{Backend, wait_until};

use crate::world::{SOON, World};

/// Counts orders in a table of its own, through the unit that holds the claim.
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

#[tokio::test(flavor = "multi_thread")]
async fn two_groups_on_one_database_each_handle_every_event_once() -> Result<()> {
    let world = World::new(2, ProviderSettings::default()).await?;
    let orders = sample_orders(40);
    world.send(orders.iter().chain(&orders)).await?;
    let _billing = world.service().await?;
    world.settled(40).await?;

    let pool = connect(&PgSettings::new(world.database_url.as_str())).await?;
    sqlx::query("create table counted (order_id text not null)").execute(&pool).await?;
    let group = format!("analytics-{}", world.group);
    let settings = KafkaSettings::new(Backend::from_env()?.kafka_brokers);
    let source = Topic::new(world.topic.as_str());
    let delay = Duration::from_secs(1);
    let plan = TopicPlan::new(&source, &group, &[delay]);
    ensure_topics(&settings, &plan, true).await?;
    let topology = Topology {
        group: ConsumerGroup::new(group.as_str()),
        source,
        tiers: plan.retries.into_iter().map(|topic| Tier { topic, delay }).collect(),
        dead_letters: plan.dead_letter,
    };
    let (stream, control) = KafkaStream::start(&settings, &group, &topology.consumed())?;
    let consumer = Consumer {
        settings: ConsumerSettings { topology, batch_max: 100, calls_max: 8, clock_skew: Duration::from_secs(300) },
        store: Arc::new(PgStore::new(pool.clone(), connect(&PgSettings::new(world.database_url.as_str())).await?)),
        handler: Arc::new(CountOrders),
        decoder: Arc::new(OrderConfirmedDecoder::new(Currency::EUR)),
        publisher: Arc::new(KafkaPublisher::new(&settings)?),
        runtime: Arc::new(TokioRuntime::current()),
        health: Health::default(),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(consumer.run(stream, control, async { drop(stopped.await) }));
    wait_until("the second group's claims", SOON, async || {
        world.ledger.claim_count(&group).await.is_ok_and(|count| count == 40)
            && world.kafka.lag(&group, &world.topic).await.is_ok_and(|lag| lag == 0)
    })
    .await?;
    drop(stop);
    running.await??;

    let counted: (i64, i64) =
        sqlx::query_as("select count(*), count(distinct order_id) from counted").fetch_one(&pool).await?;
    ensure!(counted == (40, 40), "{counted:?}");
    world.charged_exactly(&orders).await
}
