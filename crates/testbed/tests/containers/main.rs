//! The program with the containers, on a real Docker engine: what it starts serves, and nothing outlives its holder.
//! The scenarios that use the containers are the other crates' integration tests.

#![allow(clippy::unwrap_used, reason = "a test and what it calls may panic")]

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use sqlx::{Connection, PgConnection};
use testbed::{
    containers::{self, Images, engine_in_sight},
    holder::{Component, Holder},
    wait_until,
};
use tokio::{net::TcpStream, sync::Mutex};

/// How long Docker may take to remove two containers.
const REMOVED: Duration = Duration::from_secs(60);

/// One at a time: a test looks at what is there afterwards.
static ALONE: Mutex<()> = Mutex::const_new(());

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_containers"))
}

fn started() -> Holder {
    containers::start(program(), &Images::from_env(), |note| println!("{note}")).unwrap()
}

fn value(containers: &Holder, component: Component) -> String {
    assert_eq!(containers.failures(), []);
    let ready = containers.ready().iter().find(|ready| ready.component == component);
    ready.unwrap().value.clone()
}

/// The containers that the program with this process id has made, a line each.
fn containers_of(process_id: u32) -> String {
    let filter = format!("label=delivery.testbed.process={process_id}");
    let output = Command::new("docker").args(["ps", "--all", "--quiet", "--filter", &filter]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Volumes that no container has.
fn orphaned_volumes() -> String {
    let output =
        Command::new("docker").args(["volume", "ls", "--quiet", "--filter", "dangling=true"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn both_serve_and_letting_go_leaves_neither_container_nor_volume() {
    let _alone = ALONE.lock().await;
    engine_in_sight().unwrap();
    let volumes = orphaned_volumes();
    let containers = started();
    let (kafka, postgres) = (value(&containers, Component::Kafka), value(&containers, Component::Postgres));
    TcpStream::connect(&kafka).await.unwrap();
    let mut connection = PgConnection::connect(&postgres).await.unwrap();
    for (name, expected) in [("fsync", "on"), ("synchronous_commit", "on"), ("max_connections", "300")] {
        let setting = sqlx::query_scalar("select current_setting($1)").bind(name);
        let value: String = setting.fetch_one(&mut connection).await.unwrap();
        assert_eq!(value, expected, "{name}");
    }
    let process = containers.process_id();
    assert_eq!(containers_of(process).lines().count(), 2);
    drop(containers);
    assert_eq!(containers_of(process), "");
    assert_eq!(orphaned_volumes(), volumes);
}

#[tokio::test]
async fn what_a_kill_9_of_the_program_leaves_is_removed_by_the_next_start_and_nothing_else() {
    let _alone = ALONE.lock().await;
    let volumes = orphaned_volumes();
    let killed = started();
    let process = killed.process_id();
    signal("KILL", process);
    drop(killed);
    assert_eq!(containers_of(process).lines().count(), 2, "a kill leaves them");

    let next = started();
    assert_eq!(containers_of(process), "");
    assert_eq!(orphaned_volumes(), volumes);
    let other = started();
    for (run, name) in [(&next, "next"), (&other, "other")] {
        TcpStream::connect(value(run, Component::Kafka)).await.expect(name);
    }
}

#[tokio::test]
async fn an_interrupt_removes_what_was_started_and_what_is_being_started() {
    let _alone = ALONE.lock().await;
    let interrupted = started();
    let process = interrupted.process_id();
    assert_eq!(containers_of(process).lines().count(), 2);
    signal("INT", process);
    wait_until("the containers to go", REMOVED, async || containers_of(process).is_empty()).await.unwrap();

    let images = Images::from_env();
    let mut early = Command::new(program())
        .args(["--kafka", &images.kafka, "--postgres", &images.postgres])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("a container to be there", REMOVED, async || !containers_of(early.id()).is_empty()).await.unwrap();
    drop(early.stdin.take());
    assert!(early.wait().unwrap().success());
    assert_eq!(containers_of(early.id()), "");
}

#[tokio::test]
async fn an_image_that_nobody_has_is_an_error_that_says_what_to_do() {
    let _alone = ALONE.lock().await;
    let images = Images { kafka: "localhost:1/nobody/has:this".to_owned(), ..Images::from_env() };
    let error = containers::start(program(), &images, |_| {}).unwrap_err().to_string();
    assert!(error.contains("localhost:1/nobody/has:this is not here and cannot be pulled"), "{error}");
    assert!(error.contains("TEST_KAFKA_IMAGE") && error.contains("docker/build"), "{error}");
}

#[tokio::test]
async fn a_container_that_ends_is_a_failure_with_its_log_and_the_other_one_serves() {
    let _alone = ALONE.lock().await;
    // A server that has no broker's script, and so cannot be a broker.
    let images = Images { kafka: Images::from_env().postgres, ..Images::from_env() };
    let containers = containers::start(program(), &images, |_| {}).unwrap();
    let [(Component::Kafka, error)] = containers.failures() else { panic!("{containers:?}") };
    assert!(error.contains("/etc/kafka/docker/run"), "{error}");
    let [ready] = containers.ready() else { panic!("{containers:?}") };
    PgConnection::connect(&ready.value).await.unwrap();
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_an_error() {
    let output = Command::new(program())
        .args(["--kafka", "a", "--postgres", "b"])
        .env("DOCKER_HOST", "tcp://127.0.0.1:1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("unavailable\tDocker does not answer"), "{said}");
    assert!(!output.status.success());
}

fn signal(name: &str, process_id: u32) {
    let status = Command::new("kill").args([&format!("-{name}"), &process_id.to_string()]).status().unwrap();
    assert!(status.success());
}
