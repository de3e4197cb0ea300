//! A private PostgreSQL keeps its data over stops and leaves nothing behind; the shared one is not touched.

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use sqlx::{Connection, Executor, PgConnection};
use testbed::{PostgresOptions, PrivatePostgres, wait_until};
use tokio::net::TcpStream;

/// Set in the child that is to be killed.
const HOLDER: &str = "TESTBED_HOLDS_POSTGRES";

#[tokio::test]
async fn committed_rows_survive_every_kind_of_stop() {
    let mut postgres = PrivatePostgres::start(PostgresOptions::default()).await.unwrap();
    let url = postgres.create_database("Ledger \"one\"").await;
    assert!(url.is_ok(), "a name is quoted: {url:?}");
    let url = postgres.create_database("ledger").await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute("create table charge (id int primary key)").await.unwrap();
    connection.execute("insert into charge values (1)").await.unwrap();

    postgres.stop_immediately().await.unwrap();
    assert!(connection.execute("select 1").await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());
    postgres.restart().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute("insert into charge values (2)").await.unwrap();

    postgres.restart().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let ids: Vec<i32> =
        sqlx::query_scalar("select id from charge order by id").fetch_all(&mut connection).await.unwrap();
    assert_eq!(ids, [1, 2]);

    let folder = postgres.folder().to_owned();
    drop(postgres);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_kill_9_of_the_holder_leaves_no_server() {
    if env::var_os(HOLDER).is_some() {
        hold_until_killed().await;
    }
    // This very test again, in a process of its own that only holds a server.
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--exact", "postgres::a_kill_9_of_the_holder_leaves_no_server", "--nocapture"])
        .env(HOLDER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    let line = output
        .lines()
        .map(Result::unwrap)
        .find_map(|line| line.split_once("holds ").map(|(_, held)| held.to_owned()))
        .expect("the holder says what it holds");
    let (port, folder) = line.split_once(' ').unwrap();
    let (port, folder): (u16, PathBuf) = (port.parse().unwrap(), folder.into());
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(folder.exists());

    holder.kill().unwrap();
    holder.wait().unwrap();

    wait_until("the folder to go", Duration::from_secs(10), async || !folder.exists()).await.unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}

async fn hold_until_killed() {
    let postgres = PrivatePostgres::start(PostgresOptions::default()).await.unwrap();
    println!("\nholds {} {}", postgres.port(), postgres.folder().display());
    std::future::pending::<()>().await;
}
