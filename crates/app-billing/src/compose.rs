//! The composition root: which adapter stands behind which port. It holds no rule, only the order in which things
//! are started and stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adapters_http::ops::{self, ReadinessSource};
use adapters_http::payment::{self, HttpPaymentGateway, PaymentConfigError, PaymentSettings, Secret as ApiKey};
use adapters_kafka::{
    ClientHealth, KafkaError, KafkaPublisher, KafkaSettings, KafkaStream, TopicFacts, TopicPlan, TopicsError,
    ensure_topics, find_topics,
};
use adapters_tokio::TokioRuntime;
use anyhow::{Context, Error, anyhow};
use core_delivery::claim::ConsumerGroup;
use core_delivery::delivery::{Consumer, ConsumerSettings, Health, StormLimits, Tier, Topology, check_clocks};
use core_delivery::ports::Runtime;
use core_delivery::record::Topic;
use core_order::OrderConfirmedDecoder;
use infra_postgres::{
    ConnectError, MigrationError, PartitionPlan, PgSettings, PgStore, Retention, check_durability, connect,
    database_clock, migrate_delivery,
};
#[cfg(feature = "embedded")]
use sandbox::provider::{Provider, ProviderSettings};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::Failure;
#[cfg(feature = "embedded")]
use crate::cli::SandboxProvider;
use crate::config::{ClaimRetention, Config, Database, PaymentLookup, Settings};
use crate::conflicts::Conflicts;
use crate::doubt::KeyMemory;
use crate::handler::ChargeOrders;
use crate::housekeeping::{keep_partitions, watch_clock};
use crate::ledger::{BillingStore, migrate_ledger, pin_currency};
use crate::retention::{self, ExpiryTask};
use crate::telemetry::{MetricsText, install_metrics};

/// What a call may take beyond its timeout before it is certain that it has ended.
const CALL_MARGIN: Duration = Duration::from_secs(2);

/// How long tasks of an ended consumer are waited for: a unit that outlived its lane, at most.
const LAST_TASKS: Duration = Duration::from_secs(15);

/// Consumes and charges until a signal, then drains and leaves.
pub async fn run(settings: Settings) -> Result<(), Failure> {
    let stop = stop_signal()?;
    let metrics = install_metrics().map_err(Failure::Configuration)?;
    let listener = listen(settings.config.http_addr, OtherPort::Refused).await?;
    serve(settings, Serving { metrics, listener }, stop).await
}

/// What the process has one of, whatever it runs.
pub(crate) struct Serving {
    /// What renders the metrics.
    pub(crate) metrics: MetricsText,
    /// Where /live, /ready and /metrics are served.
    pub(crate) listener: TcpListener,
}

/// Consumes and charges until told to stop, then drains.
pub(crate) async fn serve(
    settings: Settings,
    Serving { metrics, listener }: Serving,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failure> {
    let config = &settings.config;
    let runtime = Arc::new(TokioRuntime::current());
    payment::describe_metrics();

    let gateway = HttpPaymentGateway::new(payment_settings(&settings)).map_err(payment_failure)?;
    if gateway.sends_its_key_in_the_clear() {
        tracing::warn!("the payment API key can be read on the way: PAYMENT_URL is plain http to another machine");
    }
    let kafka = kafka_settings(&settings);
    kafka.validate().context("Kafka").map_err(Failure::Configuration)?;

    let (units, maintenance) = open_database(&settings.database).await?;
    let plan = PartitionPlan::default();
    if settings.database.migrate {
        bring_up_to_date(&maintenance, plan, runtime.now()).await?;
    }
    pin_currency(&maintenance, settings.database.currency).await.map_err(Failure::Configuration)?;

    let now = database_clock(&maintenance).await.map_err(|error| Failure::Dependency(error.into()))?;
    check_clocks(runtime.now(), now).map_err(|reason| Failure::Dependency(anyhow!(reason)))?;

    let topology = topology(config);
    let topics = TopicPlan::new(&topology.source, topology.group.as_str(), &config.retry_tiers);
    let report = match config.kafka_check_topics {
        true => ensure_topics(&kafka, &topics, config.kafka_create_topics).await,
        false => find_topics(&kafka, &topics).await,
    };
    let report = report.map_err(topics_failure)?;
    tracing::info!(partitions = report.partitions, created = report.created.len(), "topics checked");
    let retention = claim_retention(config.claim_retention, &report.topics);
    let message_bytes_max = report.copy_bytes_max().unwrap_or(kafka.message_bytes_max);
    let kafka = KafkaSettings { message_bytes_max, ..kafka };
    let publisher = KafkaPublisher::new(&kafka).map_err(kafka_failure)?;
    let (stream, control) =
        KafkaStream::start(&kafka, topology.group.as_str(), &topology.consumed()).map_err(kafka_failure)?;

    let health = Health::default();
    let ready = Ready { health: health.clone(), clients: [stream.health(), publisher.health()] };
    // Beside the consumer, and a little longer than it: told to end when it has drained.
    let (ending, ended) = watch::channel(false);
    let mut serving = ended.clone();
    let addr = listener.local_addr().context("the listener has no address").map_err(Failure::Dependency)?;
    tracing::info!(%addr, "serving /live, /ready and /metrics");
    let server = ops::serve(listener, ops::router(Arc::new(ready), metrics), async move {
        drop(serving.wait_for(|ended| *ended).await);
    });
    runtime.spawn("operations server", Box::pin(server));
    let kernel_runtime = Arc::clone(&runtime) as Arc<dyn Runtime>;
    let partitions =
        keep_partitions(maintenance.clone(), plan, Arc::clone(&kernel_runtime), health.clone(), ended.clone());
    runtime.spawn("partitions", Box::pin(partitions));
    let clock = watch_clock(maintenance.clone(), Arc::clone(&kernel_runtime), health.clone(), ended.clone());
    runtime.spawn("clock", Box::pin(clock));
    let expiry = ExpiryTask {
        pool: maintenance.clone(),
        group: topology.group.clone(),
        retention: Retention::of(retention),
        expiry: config.claim_expiry,
        runtime: Arc::clone(&kernel_runtime),
        health: health.clone(),
    };
    runtime.spawn("claim expiry", Box::pin(expiry.run(ended)));

    let conflicts = Conflicts::new(config.payment_conflict, config.payment_call_timeout + CALL_MARGIN);
    let memory = KeyMemory::new(config.payment_key_lifetime, config.clock_skew, config.payment_call_timeout);
    let handler = ChargeOrders::new(Arc::new(gateway), conflicts, memory, Arc::clone(&kernel_runtime));
    let consumer = Consumer {
        settings: ConsumerSettings {
            topology,
            batch_max: config.batch_max,
            calls_max: config.calls_max,
            straggler_deadline: config.straggler_deadline,
            storm: StormLimits::default(),
            clock_skew: config.clock_skew,
        },
        store: Arc::new(BillingStore(PgStore::new(units, maintenance))),
        handler: Arc::new(handler),
        decoder: Arc::new(OrderConfirmedDecoder::new(config.currency)),
        publisher: Arc::new(publisher),
        runtime: kernel_runtime,
        health,
    };
    tracing::info!(topic = config.kafka_topic, group = config.kafka_group, "consuming");
    let result = consumer.run(stream, control, stop).await;
    drop(ending);
    if let Err(still_running) = runtime.wait_idle(LAST_TASKS).await {
        tracing::warn!(%still_running, "tasks are left running");
    }
    result.map_err(|error| Failure::Dependency(error.into()))?;
    tracing::info!("stopped, everything settled is committed");
    Ok(())
}

/// Refuses what the clients of Kafka and of the provider would refuse at start. It asks nobody.
pub fn check_clients(settings: &Settings) -> Result<(), Failure> {
    HttpPaymentGateway::new(payment_settings(settings)).map_err(payment_failure)?;
    kafka_settings(settings).validate().context("Kafka").map_err(Failure::Configuration)
}

/// Brings the database to this version and leaves.
pub async fn migrate(database: Database) -> Result<(), Failure> {
    let (_, maintenance) = open_database(&database).await?;
    bring_up_to_date(&maintenance, PartitionPlan::default(), TokioRuntime::current().now()).await?;
    pin_currency(&maintenance, database.currency).await.map_err(Failure::Configuration)?;
    println!("the database is up to date");
    Ok(())
}

/// Serves the sandbox provider until a signal.
#[cfg(feature = "embedded")]
pub async fn sandbox_provider(options: SandboxProvider) -> Result<(), Failure> {
    let stop = stop_signal()?;
    let settings = ProviderSettings {
        seed: options.seed,
        fault_share: options.fault_share,
        max_faults_per_key: options.max_faults_per_key,
        decline_share: options.decline_share,
        latency_ms: options.latency_ms,
        ..ProviderSettings::default()
    };
    let mut provider =
        Provider::start(options.listen, settings).await.map_err(|error| Failure::Dependency(error.into()))?;
    println!("sandbox provider: PAYMENT_URL={}", provider.base_url());
    stop.await;
    provider.stop().await;
    Ok(())
}

/// The pools of units and of maintenance, on a server that keeps what it confirms.
pub(crate) async fn open_database(database: &Database) -> Result<(PgPool, PgPool), Failure> {
    let settings = |url: &str, max_connections| PgSettings {
        max_connections,
        application_name: "app-billing".to_owned(),
        ..PgSettings::new(url)
    };
    let units = connect(&settings(database.url.reveal(), database.connections)).await.map_err(database_failure)?;
    let maintenance = connect(&settings(database.maintenance_url.reveal(), 2)).await.map_err(database_failure)?;
    check_durability(&units).await.map_err(database_failure)?;
    Ok((units, maintenance))
}

async fn bring_up_to_date(
    maintenance: &PgPool,
    plan: PartitionPlan,
    now: core_delivery::event::UnixMillis,
) -> Result<(), Failure> {
    migrate_delivery(maintenance, plan, now).await.map_err(migration_failure)?;
    migrate_ledger(maintenance).await.map_err(migration_failure)
}

/// How long claims are kept; shorter than the topics can bring an event back is safe, and worth a warning.
fn claim_retention(setting: ClaimRetention, topics: &[TopicFacts]) -> Duration {
    let auto = retention::auto(&topics.iter().map(|facts| facts.retention).collect::<Vec<_>>());
    let keep = match setting {
        ClaimRetention::Auto => auto,
        ClaimRetention::For(keep) => keep,
    };
    if keep < auto {
        tracing::warn!(?keep, topics = ?auto, "claims are kept for less than the topics can bring an event back: such an \
            event becomes a dead letter unless the ledger knows it");
    }
    keep
}

pub(crate) fn topology(config: &Config) -> Topology {
    let (source, group) = (Topic::new(config.kafka_topic.as_str()), ConsumerGroup::new(config.kafka_group.as_str()));
    let plan = TopicPlan::new(&source, group.as_str(), &config.retry_tiers);
    let tiers = plan.retries.into_iter().zip(&config.retry_tiers);
    Topology {
        tiers: tiers.map(|(topic, delay)| Tier { topic, delay: *delay }).collect(),
        dead_letters: plan.dead_letter,
        source,
        group,
    }
}

pub(crate) fn kafka_settings(settings: &Settings) -> KafkaSettings {
    let config = &settings.config;
    KafkaSettings {
        client_id: "app-billing".to_owned(),
        properties: config.kafka_properties(),
        session_timeout: config.kafka_session_timeout,
        drain_limit: config.drain_limit,
        commit_interval: config.kafka_commit_interval,
        // Enough that a lane that is busy is not paused: a pause throws its prefetch away. The bytes are bounded too.
        lane_records_max: 10 * config.batch_max,
        ..KafkaSettings::new(settings.brokers.as_str())
    }
}

pub(crate) fn payment_settings(settings: &Settings) -> PaymentSettings {
    let config = &settings.config;
    PaymentSettings {
        api_key: settings.payment_api_key.as_ref().map(|key| ApiKey::new(key.reveal())),
        look_up: config.payment_lookup == PaymentLookup::On,
        connect_timeout: config.payment_connect_timeout,
        call_timeout: config.payment_call_timeout,
        max_in_flight: config.calls_max,
        ..PaymentSettings::new(settings.payment_url.as_str())
    }
}

/// What to do if a port is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherPort {
    /// Any free one is as good.
    Taken,
    /// It is an error.
    Refused,
}

pub(crate) async fn listen(address: SocketAddr, other_port: OtherPort) -> Result<TcpListener, Failure> {
    let mut listener = TcpListener::bind(address).await;
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    if other_port == OtherPort::Taken && listener.as_ref().is_err_and(is_taken) {
        listener = TcpListener::bind(SocketAddr::new(address.ip(), 0)).await;
    }
    let listener = listener.with_context(|| format!("cannot listen on {address}: set HTTP_ADDR to a free address"));
    listener.map_err(Failure::Dependency)
}

/// Completes at the first SIGTERM or SIGINT. A second one ends the process at once.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()> + Send, Failure> {
    let listen = |kind| signal(kind).context("cannot listen for signals").map_err(Failure::Dependency);
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: running work is finished, nothing new is started (again to quit at once)");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("quitting without draining: unfinished events will be delivered again");
            std::process::exit(130);
        });
    })
}

/// What holds the service up, wherever it is.
struct Ready {
    health: Health,
    clients: [Arc<ClientHealth>; 2],
}

impl ReadinessSource for Ready {
    fn reasons(&self) -> Vec<String> {
        let mut reasons = self.health.reasons();
        for trouble in self.clients.iter().filter_map(|client| client.trouble()) {
            reasons.push(format!("kafka: {} (for {} s)", trouble.text, trouble.since.elapsed().as_secs()));
        }
        reasons
    }
}

fn database_failure(error: ConnectError) -> Failure {
    match error {
        ConnectError::Url { .. } | ConnectError::Unfit(_) => Failure::Configuration(anyhow!(error)),
        ConnectError::Unreachable { .. } => Failure::Dependency(anyhow!(error)),
    }
}

fn migration_failure(error: MigrationError) -> Failure {
    match error {
        MigrationError::Store(_) => Failure::Dependency(anyhow!(error)),
        MigrationError::History { .. } => Failure::Configuration(anyhow!(error)),
    }
}

pub(crate) fn topics_failure(error: TopicsError) -> Failure {
    match error {
        TopicsError::Unreachable { .. } | TopicsError::NotVisible { .. } | TopicsError::Refused { .. } => {
            Failure::Dependency(anyhow!(error))
        }
        _ => Failure::Configuration(anyhow!(error)),
    }
}

fn kafka_failure(error: KafkaError) -> Failure {
    match error {
        KafkaError::Thread { .. } => Failure::Dependency(anyhow!(error)),
        _ => Failure::Configuration(anyhow!(error)),
    }
}

pub(crate) fn payment_failure(error: PaymentConfigError) -> Failure {
    Failure::Configuration(Error::new(error).context("PAYMENT_URL"))
}
