//! The kernel as a service composes it, with a handler that does nothing outside and writes one row an event. How long
//! it is let run, and what is measured meanwhile, is the measurement's own.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use adapters_kafka::{KafkaPublisher, KafkaSettings, KafkaStream, TopicPlan, ensure_topics};
use adapters_tokio::TokioRuntime;
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use core_delivery::{
    claim::{Claim, Claimed, ConsumerGroup, DedupKey},
    delivery::{Consumer, ConsumerSettings, Health, StormLimits, Topology},
    event::UnixMillis,
    ports::{
        Decoded, EventDecoder, EventHandler, HandlerError, LaneLog, LaneMark, MarkAnswer, Owner, PositionStep, Runtime,
        StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory,
    },
    record::{LaneId, Record, Topic},
};
use core_order::{Currency, OrderConfirmed, OrderConfirmedDecoder};
use infra_postgres::{PgStore, PgUnit};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{
    cpu::Processes,
    table::{self, Database},
    world::{Running, TOPIC, World},
};

/// How long the last tasks may take after the stop.
const LAST_TASKS: Duration = Duration::from_secs(15);

/// A consumer of the topic that runs.
pub(crate) struct Consuming {
    pub(crate) progress: Arc<Progress>,
    decoder: Arc<Stopwatch>,
    runtime: Arc<TokioRuntime>,
    stop: oneshot::Sender<()>,
    consumer: JoinHandle<Result<()>>,
}

impl Consuming {
    /// Starts as `group`, from the beginning of the topic.
    pub(crate) async fn start(
        world: &World,
        database: &Database,
        group: &str,
        events: usize,
        batch_max: usize,
    ) -> Result<Self> {
        let kafka = KafkaSettings { lane_records_max: 10 * batch_max, ..KafkaSettings::new(world.brokers()) };
        let plan = TopicPlan::new(&Topic::new(TOPIC), group, &[]);
        ensure_topics(&kafka, &plan, true).await?;
        let topology = Topology {
            group: ConsumerGroup::new(group),
            source: plan.source,
            tiers: Vec::new(),
            dead_letters: plan.dead_letter,
        };
        let progress = Arc::new(Progress { events, ..Progress::default() });
        let first = FirstRecord { processes: world.processes, running: Mutex::new(None) };
        let decoder = Arc::new(Stopwatch { decoder: OrderConfirmedDecoder::new(Currency::EUR), first });
        let runtime = Arc::new(TokioRuntime::current());
        let (stream, control) = KafkaStream::start(&kafka, group, &topology.consumed())?;
        let consumer = Consumer {
            settings: ConsumerSettings {
                topology,
                batch_max,
                calls_max: 256,
                straggler_deadline: Duration::from_secs(1),
                storm: StormLimits::default(),
                clock_skew: Duration::from_secs(300),
            },
            store: Arc::new(Store { store: database.store.clone(), progress: Arc::clone(&progress) }),
            handler: Arc::new(WriteRows),
            decoder: Arc::clone(&decoder) as Arc<dyn EventDecoder<OrderConfirmed>>,
            publisher: Arc::new(KafkaPublisher::new(&kafka)?),
            runtime: Arc::clone(&runtime) as Arc<dyn Runtime>,
            health: Health::default(),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let consumed = consumer.run(stream, control, async { drop(stopped.await) });
        let consumer = tokio::spawn(async { Ok(consumed.await?) });
        Ok(Self { progress, decoder, runtime, stop, consumer })
    }

    /// The measurement that began with the first record.
    pub(crate) fn take_running(&self) -> Result<Running> {
        self.decoder.first.take().context("nothing was decoded")
    }

    /// It has neither ended nor come to the end of the topic.
    pub(crate) fn assert_busy(&self) -> Result<()> {
        ensure!(!self.consumer.is_finished(), "the consumer ended by itself");
        ensure!(self.progress.committed() < self.progress.events, "the consumer has no events left: more are needed");
        Ok(())
    }

    /// Stops in order: what is begun is committed.
    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.consumer.await??;
        self.runtime.wait_idle(LAST_TASKS).await?;
        Ok(())
    }
}

/// How many events are committed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    events: usize,
    committed: AtomicUsize,
    /// Told when all events are committed.
    pub(crate) finished: Notify,
}

impl Progress {
    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }
}

/// Begins the measurement at the first record.
struct Stopwatch {
    decoder: OrderConfirmedDecoder,
    first: FirstRecord,
}

struct FirstRecord {
    processes: Processes,
    running: Mutex<Option<Running>>,
}

impl FirstRecord {
    fn seen(&self) {
        let mut running = self.running.lock().expect("nobody panics with it");
        if running.is_none() {
            *running = Running::begin(self.processes).ok();
        }
    }

    fn take(&self) -> Option<Running> {
        self.running.lock().expect("nobody panics with it").take()
    }
}

impl EventDecoder<OrderConfirmed> for Stopwatch {
    fn decode(&self, record: &Record) -> Decoded<OrderConfirmed> {
        self.first.seen();
        self.decoder.decode(record)
    }
}

struct Store {
    store: PgStore,
    progress: Arc<Progress>,
}

struct Unit {
    unit: PgUnit,
    written: usize,
    progress: Arc<Progress>,
}

#[async_trait]
impl UnitOfWorkFactory for Store {
    type Unit = Unit;

    async fn begin(&self) -> Result<Unit, StoreError> {
        let unit = self.store.begin().await?;
        Ok(Unit { unit, written: 0, progress: Arc::clone(&self.progress) })
    }

    async fn now(&self) -> Result<UnixMillis, StoreError> {
        self.store.now().await
    }

    async fn positions(&self, group: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        self.store.positions(group, lane).await
    }

    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        self.store.mark(lane).await
    }

    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError> {
        self.store.set_mark(lane, from, to).await
    }
}

#[async_trait]
impl UnitOfWork for Unit {
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError> {
        self.unit.claim(keys).await
    }

    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError> {
        self.unit.release(keys).await
    }

    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError> {
        self.unit.advance(step).await
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.unit.commit().await?;
        let before = self.progress.committed.fetch_add(self.written, Ordering::Relaxed);
        if before + self.written >= self.progress.events {
            self.progress.finished.notify_one();
        }
        Ok(())
    }
}

struct WriteRows;

#[async_trait]
impl EventHandler<OrderConfirmed, Unit> for WriteRows {
    type Receipt = ();

    async fn perform(&self, _event: &Claimed<OrderConfirmed>) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn record(&self, unit: &mut Unit, done: &[(Claimed<OrderConfirmed>, ())]) -> Result<(), StoreError> {
        let events: Vec<&OrderConfirmed> = done.iter().map(|(claimed, ())| claimed.event()).collect();
        unit.written += events.len();
        table::insert(&mut unit.unit, &events).await
    }
}
