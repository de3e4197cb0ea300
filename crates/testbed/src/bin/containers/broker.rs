//! Kafka as a container: one node with KRaft, set as `LocalKafka` is.

use std::borrow::Cow;

use anyhow::Result;
use testcontainers::{
    ContainerAsync, ContainerRequest, Image, TestcontainersError,
    core::{ContainerPort, ContainerState, ExecCommand, WaitFor},
};

use crate::request::{self, Served, address, name_and_tag};

const PORT: ContainerPort = ContainerPort::Tcp(9092);
/// What the broker logs once it serves.
const STARTED: &str = "Kafka Server started";
/// The script that the container waits for, since its port is known only once it runs.
const START_SCRIPT: &str = "/tmp/start.sh";

const PROPERTIES: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("controller.quorum.voters", "1@localhost:9094"),
    ("listeners", "PLAINTEXT://:9092,INTERNAL://:9093,CONTROLLER://:9094"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ("controller.listener.names", "CONTROLLER"),
    ("inter.broker.listener.name", "INTERNAL"),
    ("auto.create.topics.enable", "false"),
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "2"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
];

/// Starts a broker.
///
/// # Errors
/// When it does not get ready; the error has its log's tail.
pub(crate) async fn start(image: &str, labels: Vec<(String, String)>) -> Result<Served<ContainerAsync<Broker>>> {
    let (name, tag) = name_and_tag(image);
    let broker = Broker { name: name.to_owned(), tag: tag.to_owned() };
    let container = request::start(ContainerRequest::from(broker), labels, PORT).await?;
    let value = address(&container.get_host().await?, container.get_host_port_ipv4(PORT).await?);
    let about = format!("a container of {image} on {value}");
    Ok(Served { container, value, about })
}

/// An `Image` of our own: a generic one cannot be told its port after the start.
#[derive(Debug)]
pub(crate) struct Broker {
    name: String,
    tag: String,
}

impl Image for Broker {
    fn name(&self) -> &str {
        &self.name
    }

    fn tag(&self) -> &str {
        &self.tag
    }

    /// None before the script is there: see [`exec_after_start`](Self::exec_after_start).
    fn ready_conditions(&self) -> Vec<WaitFor> {
        Vec::new()
    }

    fn entrypoint(&self) -> Option<&str> {
        Some("bash")
    }

    fn cmd(&self) -> impl IntoIterator<Item = impl Into<Cow<'_, str>>> {
        let wait = format!("until [ -s {START_SCRIPT} ]; do sleep 0.1; done; exec bash {START_SCRIPT}");
        ["-c".to_owned(), wait]
    }

    fn env_vars(&self) -> impl IntoIterator<Item = (impl Into<Cow<'_, str>>, impl Into<Cow<'_, str>>)> {
        let heap = ("KAFKA_HEAP_OPTS".to_owned(), "-Xms256m -Xmx768m");
        PROPERTIES.iter().map(|(name, value)| (variable(name), *value)).chain([heap])
    }

    fn expose_ports(&self) -> &[ContainerPort] {
        &[PORT]
    }

    fn exec_after_start(&self, state: ContainerState) -> Result<Vec<ExecCommand>, TestcontainersError> {
        let advertised = address(state.host(), state.host_port_ipv4(PORT)?);
        let listeners = format!("PLAINTEXT://{advertised},INTERNAL://localhost:9093");
        let script = format!("export KAFKA_ADVERTISED_LISTENERS={listeners}\nexec /etc/kafka/docker/run");
        // Moved into place, for the container could run half of it.
        let write = format!("printf '%s\\n' '{script}' > {START_SCRIPT}.part && mv {START_SCRIPT}.part {START_SCRIPT}");
        let is_ready = vec![WaitFor::message_on_stdout(STARTED)];
        Ok(vec![ExecCommand::new(["sh", "-c", &write]).with_container_ready_conditions(is_ready)])
    }
}

/// The variable by which the image takes a property.
fn variable(property: &str) -> String {
    format!("KAFKA_{}", property.replace('.', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_has_the_variable_that_the_image_expects() {
        assert_eq!(variable("group.min.session.timeout.ms"), "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS");
    }
}
