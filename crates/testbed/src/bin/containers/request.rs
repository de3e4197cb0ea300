//! What both containers have in common: labels, limits, where their port is published, what is said when one fails.

use std::{
    collections::{HashMap, VecDeque},
    env,
    error::Error,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, anyhow};
use testcontainers::{
    ContainerAsync, ContainerRequest, Image, ImageExt,
    bollard::models::PortBinding,
    core::{ContainerPort, logs::LogFrame},
    runners::AsyncRunner,
};

/// How long a container may take until it serves, on a slow machine too.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// Lines of its log in an error.
const TAIL_LINES: usize = 25;
const LOOPBACK: &str = "127.0.0.1";

/// A container that serves.
pub(crate) struct Served<C> {
    /// It is removed when this is dropped.
    pub(crate) container: C,
    /// The value of the component's variable.
    pub(crate) value: String,
    /// For people.
    pub(crate) about: String,
}

/// Name and tag of `host:5000/name:tag`: a colon before a slash belongs to the host.
pub(crate) fn name_and_tag(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

/// Starts the container and waits for its ready conditions.
///
/// # Errors
/// When it does not get ready; the error has its log's tail.
pub(crate) async fn start<I: Image + 'static>(
    request: impl Into<ContainerRequest<I>>,
    labels: Vec<(String, String)>,
    port: ContainerPort,
) -> Result<ContainerAsync<I>> {
    let tail = Tail::default();
    let mut request =
        request.into().with_labels(labels).with_startup_timeout(READY_LIMIT).with_log_consumer(tail.consumer());
    if is_on_loopback() {
        request = request.with_host_config_modifier(move |host| {
            let binding = PortBinding { host_ip: Some(LOOPBACK.to_owned()), host_port: None };
            host.publish_all_ports = Some(false);
            host.port_bindings = Some(HashMap::from([(port.to_string(), Some(vec![binding]))]));
        });
    }
    request.start().await.map_err(|error| anyhow!("{}; {}", describe(error), tail.read()))
}

/// `host:port` under which we reach a container's port, from its host as testcontainers sees it.
pub(crate) fn address(host: &impl ToString, port: u16) -> String {
    let host = host.to_string();
    // `localhost` may be ::1, and the port is one of IPv4.
    let host = if host == "localhost" { LOOPBACK } else { &host };
    format!("{host}:{port}")
}

/// Whether the engine is on this machine, so that nobody else needs to reach the ports. From within a container, or
/// through TCP, it may not be.
fn is_on_loopback() -> bool {
    let elsewhere = env::var("DOCKER_HOST").is_ok_and(|host| !host.starts_with("unix:"));
    !elsewhere && !Path::new("/.dockerenv").exists()
}

/// The error with all its causes: a Docker error alone says little.
pub(crate) fn describe(error: impl Error) -> anyhow::Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text += &format!(": {cause_text}");
        }
        source = cause.source();
    }
    anyhow!(text)
}

/// The last lines of a container's log.
#[derive(Debug, Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn consumer(&self) -> impl Fn(&LogFrame) + Send + Sync + 'static {
        let lines = Arc::clone(&self.0);
        move |frame| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_back(String::from_utf8_lossy(frame.bytes()).trim_end().to_owned());
            if lines.len() > TAIL_LINES {
                lines.pop_front();
            }
        }
    }

    fn read(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "it has logged nothing".to_owned();
        }
        format!("its log ends:\n{}", Vec::from_iter(lines.iter().cloned()).join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_a_slash_is_no_tag() {
        assert_eq!(name_and_tag("postgres:17"), ("postgres", "17"));
        assert_eq!(name_and_tag("localhost:5000/here/kafka:4.1"), ("localhost:5000/here/kafka", "4.1"));
        assert_eq!(name_and_tag("localhost:5000/kafka"), ("localhost:5000/kafka", "latest"));
    }
}
