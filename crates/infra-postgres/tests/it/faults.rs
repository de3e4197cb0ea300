//! What the store says when the server fails it (D7).

use std::sync::Arc;
use std::time::Duration;

use core_delivery::claim::Claim::{AlreadyProcessed, Fresh};
use core_delivery::ports::{StoreError, UnitOfWork, UnitOfWorkFactory};
use infra_postgres::{PgSettings, PgStore, UnitLimits, connect, store_error};
use sqlx::PgPool;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::world::*;

#[tokio::test]
async fn a_terminated_session_is_an_outage_and_the_next_unit_works() {
    let world = World::new().await;
    let keys = keys(2);
    let mut unit = world.begin().await;
    unit.claim(&keys[..1]).await.expect("claim");
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(unit.connection()).await.expect("pid");
    world.run(format!("select pg_terminate_backend({pid})")).await;
    assert_unavailable(unit.claim(&keys[1..]).await);
    drop(unit);
    assert_eq!(world.claimed(&keys).await, [Fresh, Fresh]);
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_an_outage() {
    let world = World::with(|settings| PgSettings { statement_timeout: Duration::from_millis(50), ..settings }).await;
    let mut unit = world.begin().await;
    let error = sqlx::raw_sql("select pg_sleep(60)").execute(unit.connection()).await.expect_err("cancelled");
    assert_unavailable(Err::<(), _>(store_error("wait", error)));
    assert_unavailable(unit.commit().await);
}

#[tokio::test]
async fn a_lock_that_is_not_granted_in_time_is_a_conflict() {
    let world = World::with(|settings| PgSettings { lock_timeout: Duration::from_millis(50), ..settings }).await;
    let keys = keys(1);
    let mut holder = world.begin().await;
    holder.claim(&keys).await.expect("claim");
    let mut unit = world.begin().await;
    assert_conflict(unit.claim(&keys).await);
    assert_conflict(unit.commit().await);
    holder.commit().await.expect("commit");
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn units_that_claim_in_opposite_order_conflict_and_no_data_is_blamed() {
    let world = Arc::new(World::new().await);
    let keys = keys(2);
    let (mut one, mut other) = (world.begin().await, world.begin().await);
    one.claim(&keys[..1]).await.expect("claim");
    other.claim(&keys[1..]).await.expect("claim");
    let one = {
        let keys = keys.clone();
        tokio::spawn(async move { one.claim(&keys[1..]).await.map(drop) })
    };
    let other = tokio::spawn(async move { other.claim(&keys[..1]).await.map(drop) });
    let (one, other) = (soon(one).await.expect("no panic"), soon(other).await.expect("no panic"));
    let conflict = if one.is_err() { one } else { other };
    assert_conflict(conflict);
}

#[tokio::test]
async fn a_read_only_server_is_an_outage_and_its_sessions_are_thrown_away() {
    let world = World::new().await;
    world.alter("set default_transaction_read_only = on").await;
    let url = PgSettings { max_connections: 3, ..PgSettings::new(&world.url) };
    let units = connect(&url).await.expect("connect");
    let store = PgStore::new(units.clone(), world.maintenance.clone());
    let keys = keys(1);
    for _ in 0..5 {
        let mut unit = store.begin().await.expect("begin");
        assert_unavailable(unit.claim(&keys).await);
    }
    // Sessions keep what was set when they were opened: only new ones can write again.
    world.alter("reset default_transaction_read_only").await;
    until("the read-only sessions are gone", || async { units.size() == 0 }).await;
    let mut unit = store.begin().await.expect("begin");
    assert_eq!(unit.claim(&keys).await.expect("claim"), [Fresh]);
    unit.commit().await.expect("commit");
}

#[tokio::test]
async fn a_pool_without_a_free_connection_is_an_outage() {
    let world =
        World::with(|settings| PgSettings { max_connections: 1, acquire_timeout: Duration::from_secs(2), ..settings })
            .await;
    let held = world.begin().await;
    assert_unavailable(world.store.begin().await.map(drop));
    drop(held);
    until("the connection is back", || async { world.units.num_idle() == 1 }).await;
    world.claimed(&keys(1)).await;
}

#[tokio::test]
async fn a_missing_table_is_an_outage_and_blames_no_event() {
    let world = World::empty(|settings| settings).await;
    let mut unit = world.begin().await;
    assert_unavailable(unit.claim(&keys(1)).await);
}

#[tokio::test]
async fn a_commit_whose_answer_never_comes_is_unknown_within_its_limit() {
    let (world, network) = world_behind_a_network().await;
    let key = key();
    let mut unit = network.store.begin().await.expect("begin");
    unit.claim(std::slice::from_ref(&key)).await.expect("claim");
    network.answers.send_replace(false);
    let result = soon(unit.commit()).await;
    assert!(matches!(result, Err(StoreError::CommitUnknown { .. })), "{result:?}");
    // This time it was stored, and the next delivery finds out (D3).
    until("it is stored", || async { world.stored().await == 1 }).await;
    assert_eq!(world.claimed(&[key]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn a_statement_whose_answer_never_comes_is_an_outage_within_its_limit() {
    let (world, network) = world_behind_a_network().await;
    let keys = keys(1);
    let mut unit = network.store.begin().await.expect("begin");
    network.answers.send_replace(false);
    assert_unavailable(soon(unit.claim(&keys)).await);
    assert_unavailable(soon(unit.commit()).await);
    assert_eq!(world.stored().await, 0);
}

/// The claim itself could hear its answers; who makes its partition cannot.
#[tokio::test]
async fn a_partition_whose_making_is_never_answered_is_an_outage_within_the_limit() {
    let (world, network) = world_behind_a_network().await;
    let store = PgStore::new(world.units.clone(), network.units.clone()).with_limits(LIMITS);
    let keys = [key_in_days(-30)];
    drop(network.units.acquire().await.expect("a session, before the answers stay away"));
    until("it is back in the pool", || async { network.units.num_idle() == 1 }).await;
    network.answers.send_replace(false);
    let mut unit = store.begin().await.expect("begin");
    assert_unavailable(soon(unit.claim(&keys)).await);
    assert_conflict(unit.commit().await);
}

/// Far from what a server that answers needs on a busy machine, so that only those answers are missing that are cut off.
const LIMITS: UnitLimits = UnitLimits { statement: Duration::from_secs(2), commit: Duration::from_secs(2) };

struct Network {
    store: PgStore,
    units: PgPool,
    answers: watch::Sender<bool>,
}

/// A store that reaches the server through a wire whose way back can be cut without either side noticing.
async fn world_behind_a_network() -> (World, Network) {
    let world = World::new().await;
    let options = world.units.connect_options();
    let (host, port) = (options.get_host().to_owned(), options.get_port());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let here = listener.local_addr().expect("bound").port();
    let there = format!("{host}:{port}/");
    let (answers, answering) = watch::channel(true);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect((host.as_str(), port)).await.expect("the server is up");
            tokio::spawn(carry(client, server, answering.clone()));
        }
    });
    let url = world.url.replace(&there, &format!("127.0.0.1:{here}/"));
    assert_ne!(url, world.url, "TEST_DATABASE_URL names host and port");
    let units = connect(&PgSettings::new(url)).await.expect("connect");
    let store = PgStore::new(units.clone(), world.maintenance.clone()).with_limits(LIMITS);
    (world, Network { store, units, answers })
}

async fn carry(client: TcpStream, server: TcpStream, answering: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let back = async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = tokio::io::AsyncReadExt::read(&mut from_server, &mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            if *answering.borrow() {
                to_client.write_all(&buffer[..length]).await?;
            }
        }
    };
    // Until either side goes away.
    let ended: Result<_, std::io::Error> = tokio::try_join!(there, back);
    drop(ended);
}
