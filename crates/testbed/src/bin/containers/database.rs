//! PostgreSQL as a container, set as `PrivatePostgres` is; it creates no table.

use anyhow::{Context, Result};
use sqlx::{Connection, PgConnection};
use testcontainers::{
    ContainerAsync, GenericImage, ImageExt,
    core::{ContainerPort, WaitFor},
};

use crate::request::{self, Served, address, name_and_tag};

const PORT: ContainerPort = ContainerPort::Tcp(5432);
/// Logged twice: on the output by a server that only makes the cluster, on the error output by the one that serves.
const READY: &str = "database system is ready to accept connections";
/// What many tests at once need.
const SETTINGS: &[&str] = &["max_connections=300", "shared_buffers=256MB", "max_wal_size=4GB"];
/// Parallel workers share memory; Docker's own 64 MiB are soon used up.
const SHARED_MEMORY: u64 = 256 << 20;

/// Starts a server.
///
/// # Errors
/// When it does not get ready (the error has its log's tail), or refuses us.
pub(crate) async fn start(image: &str, labels: Vec<(String, String)>) -> Result<Served<ContainerAsync<GenericImage>>> {
    let (name, tag) = name_and_tag(image);
    let password = format!("{:032x}", rand::random::<u128>());
    let request = GenericImage::new(name, tag)
        .with_exposed_port(PORT)
        .with_wait_for(WaitFor::message_on_stdout(READY))
        .with_wait_for(WaitFor::message_on_stderr(READY))
        .with_env_var("POSTGRES_PASSWORD", &password)
        .with_env_var("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --locale=C")
        .with_shm_size(SHARED_MEMORY)
        .with_cmd(command());
    let container = request::start(request, labels, PORT).await?;
    let address = address(&container.get_host().await?, container.get_host_port_ipv4(PORT).await?);
    let value = format!("postgres://postgres:{password}@{address}/postgres");
    let version = version(&value).await.with_context(|| format!("{image} is ready, but refuses us"))?;
    let about = format!("version {version}, a container of {image} on {address}");
    Ok(Served { container, value, about })
}

fn command() -> impl Iterator<Item = &'static str> {
    ["postgres"].into_iter().chain(SETTINGS.iter().flat_map(|setting| ["-c", *setting]))
}

async fn version(url: &str) -> Result<String> {
    let mut connection = PgConnection::connect(url).await?;
    let version = sqlx::query_scalar("select current_setting('server_version')").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(version)
}
