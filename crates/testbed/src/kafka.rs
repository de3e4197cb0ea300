//! A real Kafka broker of our own, one node with KRaft; it creates no topic and needs no client library.

mod distribution;

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{port::free_port, supervised::Supervised};
use distribution::{java, libraries};

/// How long the broker may take until it serves.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a stop in order may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Pairs of ports tried at the first start.
const PORT_ATTEMPTS: usize = 3;
/// What the broker logs once it serves.
const STARTED: &str = "Kafka Server started";
/// Its settings, a file in its folder.
const PROPERTIES: &str = "server.properties";

/// How the broker runs.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// Options of its JVM: heap, compiler, collector.
    pub jvm_options: Vec<String>,
    /// Lines of `server.properties`, `name=value`; they win over ours.
    pub properties: Vec<String>,
}

impl Default for KafkaOptions {
    /// Quick to start and small: a light compiler, 768 MiB of heap.
    fn default() -> Self {
        Self::with_jvm(&["-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
    }
}

impl KafkaOptions {
    /// For measuring: the full compiler and a larger heap of fixed size.
    #[must_use]
    pub fn bench() -> Self {
        Self::with_jvm(&["-Xms1g", "-Xmx1g"])
    }

    fn with_jvm(options: &[&str]) -> Self {
        Self { jvm_options: options.iter().map(ToString::to_string).collect(), properties: Vec::new() }
    }
}

/// A broker on 127.0.0.1 with its data in a temporary folder. It ends with us, even at a kill -9, and leaves nothing;
/// dropping it blocks until it has ended.
#[derive(Debug)]
pub struct LocalKafka {
    server: Supervised,
    options: KafkaOptions,
    ports: Ports,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    broker: u16,
    controller: u16,
}

impl Ports {
    fn free() -> Result<Self> {
        let broker = free_port()?;
        loop {
            let controller = free_port()?;
            if controller != broker {
                return Ok(Self { broker, controller });
            }
        }
    }
}

impl LocalKafka {
    /// Starts a broker with a new cluster id. Its jars come from Maven at the first call and are kept in the cache
    /// folder (`TEST_CACHE_DIR`, else `XDG_CACHE_HOME`, else `~/.cache`).
    ///
    /// # Errors
    /// When Java or Maven is missing (the error says what to install), or the broker does not get ready (with its log's
    /// tail).
    pub async fn start(options: KafkaOptions) -> Result<Self> {
        let prepare = move || Self::prepare(options);
        let mut kafka = tokio::task::spawn_blocking(prepare).await??;
        for attempt in 1.. {
            match kafka.launch().await {
                Ok(()) => break,
                Err(_) if attempt < PORT_ATTEMPTS && kafka.port_was_taken() => {
                    kafka.ports = Ports::free()?;
                    write_properties(kafka.server.folder(), kafka.ports, &kafka.options)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(kafka)
    }

    /// The bootstrap servers, `host:port`; they stay the same over restarts.
    #[must_use]
    pub fn brokers(&self) -> String {
        self.address().to_string()
    }

    /// The same as an address, for a [`Proxy`](crate::Proxy). The broker advertises this one: a client behind a proxy
    /// needs a listener that advertises the proxy's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.broker).into()
    }

    /// The folder with all files of the broker; it is gone after the drop.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// The process id of the broker.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// Stops in order (`SIGTERM`).
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<()> {
        Ok(self.server.stop("TERM", STOP_LIMIT).await?)
    }

    /// Stops as in a crash (`SIGKILL`); what is in the files stays, and the next start recovers from it.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop_immediately(&mut self) -> Result<()> {
        Ok(self.server.stop("KILL", STOP_LIMIT).await?)
    }

    /// Starts the broker on the same ports and data, after a stop in order if it runs.
    ///
    /// # Errors
    /// When it does not get ready; the error has its log's tail.
    pub async fn restart(&mut self) -> Result<()> {
        if self.server.exit_status().is_none() {
            self.stop().await?;
        }
        self.launch().await
    }

    fn prepare(options: KafkaOptions) -> Result<Self> {
        let java = java()?;
        let libraries = libraries()?;
        let folder =
            tempfile::Builder::new().prefix("testkafka.").tempdir().context("cannot create a temporary folder")?;
        let ports = Ports::free()?;
        let logging = folder.path().join("log4j2.properties");
        let properties = folder.path().join(PROPERTIES);
        let class_path: Vec<OsString> = vec![
            format!("-Dlog4j2.configurationFile={}", logging.display()).into(),
            "-cp".into(),
            libraries.join("*").into(),
        ];
        let mut command = vec![OsString::from(&java)];
        command.extend(options.jvm_options.iter().map(OsString::from));
        command.extend(class_path.clone());
        command.extend(["kafka.Kafka".into(), OsString::from(&properties)]);
        let server = Supervised::new("Kafka", Command::new("/bin/sh"), folder, "KILL", &command)?;
        fs::write(&logging, LOGGING)?;
        write_properties(server.folder(), ports, &options)?;
        format_storage(&java, &class_path, &properties)?;
        Ok(Self { server, options, ports })
    }

    async fn launch(&mut self) -> Result<()> {
        Ok(self.server.launch(READY_LIMIT, |server, begin| server.log_from(begin).contains(STARTED)).await?)
    }

    fn port_was_taken(&self) -> bool {
        self.server.log_from(0).contains("Address already in use")
    }
}

/// The broker's log goes to its output, where the start is seen.
const LOGGING: &str = "rootLogger = INFO, out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
";

fn write_properties(folder: &Path, ports: Ports, options: &KafkaOptions) -> Result<()> {
    let path = folder.join(PROPERTIES);
    fs::write(&path, properties(folder, ports, options)).with_context(|| format!("cannot write {}", path.display()))
}

fn properties(folder: &Path, ports: Ports, options: &KafkaOptions) -> String {
    let Ports { broker, controller } = ports;
    let data = folder.join("data");
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=100
{extra}
",
        data = data.display(),
        extra = options.properties.join("\n"),
    )
}

fn format_storage(java: &Path, class_path: &[OsString], properties: &Path) -> Result<()> {
    let output = Command::new(java)
        .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        .args(class_path)
        .args(["kafka.tools.StorageTool", "format", "--standalone", "-t", &cluster_id(), "-c"])
        .arg(properties)
        .output()
        .with_context(|| format!("cannot run {}", java.display()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("Kafka could not format its storage: {}", String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

/// 16 random bytes as Kafka writes them: 22 digits of base 64. The last one carries two bits only, hence the `A`.
fn cluster_id() -> String {
    use rand::{Rng, distr::Alphanumeric};
    let digits = rand::rng().sample_iter(Alphanumeric).take(21);
    digits.map(char::from).chain(['A']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_of_the_caller_comes_last_and_so_wins() {
        let mut options = KafkaOptions::default();
        options.properties.push("auto.create.topics.enable=true".into());
        let text = properties(Path::new("/tmp/x"), Ports { broker: 1, controller: 2 }, &options);
        let last = text.lines().rfind(|line| line.starts_with("auto.create.topics.enable"));
        assert_eq!(last, Some("auto.create.topics.enable=true"));
    }
}
