//! The components that the run shares can be reached; nothing is started here.

use sqlx::{Connection, PgConnection};
use testbed::Backend;
use tokio::net::TcpStream;

#[tokio::test]
async fn the_shared_postgres_answers() {
    let backend = Backend::from_env().unwrap();
    let mut connection = PgConnection::connect(&backend.database_url).await.unwrap();
    let one: i32 = sqlx::query_scalar("select 1").fetch_one(&mut connection).await.unwrap();
    assert_eq!(one, 1);
}

#[tokio::test]
async fn the_shared_postgres_confirms_only_what_is_on_disk() {
    let backend = Backend::from_env().unwrap();
    let mut connection = PgConnection::connect(&backend.database_url).await.unwrap();
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        let value: String =
            sqlx::query_scalar("select current_setting($1)").bind(name).fetch_one(&mut connection).await.unwrap();
        assert_eq!(value, "on", "{name}");
    }
}

#[tokio::test]
async fn the_shared_kafka_listens() {
    let backend = Backend::from_env().unwrap();
    for broker in backend.kafka_brokers.split(',') {
        TcpStream::connect(broker).await.unwrap();
    }
}
