//! Sessions: what they are held to, and which server is refused.

use std::time::Duration;

use infra_postgres::{ConnectError, PgSettings, check_durability, connect};

use crate::world::*;

#[tokio::test]
async fn every_session_has_the_limits() {
    let world = World::new().await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut session = world.units.acquire().await.expect("session");
        let limits: (String, String, String) = sqlx::query_as(
            "select current_setting('lock_timeout'), current_setting('statement_timeout'), \
             current_setting('idle_in_transaction_session_timeout')",
        )
        .fetch_one(&mut *session)
        .await
        .expect("settings");
        assert_eq!(limits, ("5s".to_owned(), "30s".to_owned(), "1min".to_owned()));
        held.push(session);
    }
}

#[tokio::test]
async fn a_durable_server_is_taken() {
    let world = World::new().await;
    check_durability(&world.units).await.expect("durable");
}

#[tokio::test]
async fn synchronous_commit_off_is_refused() {
    let world = World::new().await;
    world.alter("set synchronous_commit = off").await;
    let pool = connect(&PgSettings::new(&world.url)).await.expect("connect");
    let result = check_durability(&pool).await;
    assert!(matches!(&result, Err(ConnectError::Unfit(text)) if text.contains("synchronous_commit")), "{result:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_within_the_limit() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let silent = listener.local_addr().expect("bound").port();
    for url in [format!("postgres://nobody@127.0.0.1:{silent}/none"), "postgres://nobody@127.0.0.1:1/none".to_owned()] {
        let settings = PgSettings { connect_timeout: Duration::from_millis(100), ..PgSettings::new(url) };
        let result = soon(connect(&settings)).await;
        assert!(matches!(result, Err(ConnectError::Unreachable { .. })), "{result:?}");
    }
    let result = connect(&PgSettings::new("nonsense")).await;
    assert!(matches!(result, Err(ConnectError::Url { .. })), "{result:?}");
}
