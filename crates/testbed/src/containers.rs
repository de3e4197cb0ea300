//! The run's Kafka and PostgreSQL as containers, held by a program of their own (`src/bin/containers`, the feature
//! `containers`). No Docker client is built into this library: whoever starts the program needs none.

mod images;

use std::{
    env,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::holder::{Component, Holder};
pub use images::Images;

/// Starts the program and waits until each component serves or has failed; `note` hears what it says meanwhile. If we
/// are killed, it removes the containers; if it is killed as well, the next start removes them.
///
/// # Errors
/// When no container can run here: no engine answers, or an image is neither here nor can be pulled. A component that
/// fails alone is one of the [`failures`](Holder::failures).
pub fn start(program: &Path, images: &Images, note: impl FnMut(&str)) -> Result<Holder> {
    let mut command = Command::new(program);
    command.args(["--kafka", &images.kafka, "--postgres", &images.postgres]);
    Holder::start(command, &[Component::Kafka, Component::Postgres], note)
}

/// Looks whether a Docker engine may be there at all, without a client: the program's own look needs a build first.
///
/// # Errors
/// When `DOCKER_HOST` is not set and nobody listens on any of the usual sockets; the error names them.
pub fn engine_in_sight() -> Result<()> {
    if env::var_os("DOCKER_HOST").is_some() {
        return Ok(());
    }
    let sockets = usual_sockets();
    let Some(socket) = sockets.iter().find(|socket| socket.exists()) else {
        let places: Vec<_> = sockets.iter().map(|socket| socket.display().to_string()).collect();
        bail!("no Docker: DOCKER_HOST is not set, and there is no socket {}", places.join(", "));
    };
    UnixStream::connect(socket)
        .with_context(|| format!("no Docker: nobody answers on {}, start it", socket.display()))?;
    Ok(())
}

/// Where testcontainers looks, in its order: it takes the first that exists.
fn usual_sockets() -> Vec<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below = |root: Option<PathBuf>, path: &str| root.map(|root| root.join(path));
    [
        Some(PathBuf::from("/var/run/docker.sock")),
        below(folder("XDG_RUNTIME_DIR"), ".docker/run/docker.sock"),
        below(folder("HOME"), ".docker/run/docker.sock"),
        below(folder("HOME"), ".docker/desktop/docker.sock"),
    ]
    .into_iter()
    .flatten()
    .collect()
}
