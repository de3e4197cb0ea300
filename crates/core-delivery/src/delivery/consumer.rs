//! The consumer: one lane driver for each assigned lane, from the first assignment to the last release. It decides
//! nothing about events.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_lock::RwLock;
use futures::channel::mpsc;
use futures::future::FutureExt;
use futures::stream::StreamExt;
use futures::{pin_mut, select_biased};
use uuid::Uuid;

use crate::event::{Event, EventId};
use crate::ports::{
    Arrival, EventDecoder, EventHandler, Publisher, RecordStream, Runtime, StreamControl, StreamError, StreamEvent,
    UnitOfWorkFactory, panic_text,
};
use crate::record::{Assignment, Epoch, LaneId};

use super::batch::Batch;
use super::calls::Calls;
use super::doubts::Doubts;
use super::health::Health;
use super::lane::Lane;
use super::lane_driver::{Exit, Input, LaneDriver};
use super::metrics::DeliveryMetrics;
use super::storm::{StormGuard, StormLimits};
use super::topology::{Stage, Topology};

/// What a consumer is told once.
#[derive(Debug, Clone)]
pub struct ConsumerSettings {
    /// Its topics and its group.
    pub topology: Topology,
    /// The most deliveries in one unit.
    pub batch_max: usize,
    /// The most calls in flight over all lanes.
    pub calls_max: usize,
    /// How long the calls of a unit may hold it; what takes longer is awaited beside the next units.
    pub straggler_deadline: Duration,
    /// When failing counts as a storm, in which no event moves.
    pub storm: StormLimits,
    /// How far in the future an event id may lie.
    pub clock_skew: Duration,
}

/// Consumes a topic effectively once.
pub struct Consumer<E, F, H> {
    /// What it is told.
    pub settings: ConsumerSettings,
    /// Opens the units.
    pub store: Arc<F>,
    /// Handles the events.
    pub handler: Arc<H>,
    /// Decodes the records.
    pub decoder: Arc<dyn EventDecoder<E>>,
    /// Writes retries and dead letters.
    pub publisher: Arc<dyn Publisher>,
    /// Time and tasks.
    pub runtime: Arc<dyn Runtime>,
    /// Where it says what holds it up.
    pub health: Health,
}

/// Everything that the lanes share.
pub(super) struct Pipeline<E, F, H> {
    pub(super) settings: ConsumerSettings,
    pub(super) batch: Batch<F, H>,
    pub(super) decoder: Arc<dyn EventDecoder<E>>,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) control: Arc<dyn StreamControl>,
    pub(super) health: Health,
    pub(super) metrics: DeliveryMetrics,
    /// This run of the process, which owns its lanes.
    pub(super) process: Uuid,
    /// Shared by units, and held alone by what must run alone to be accused of a death.
    pub(super) company: Arc<RwLock<()>>,
    storm: Mutex<StormGuard>,
}

impl<E, F, H> Pipeline<E, F, H> {
    /// The guard that all lanes share; held only for a moment.
    pub(super) fn storm(&self) -> MutexGuard<'_, StormGuard> {
        // Its counts are whole at every instant, so a panic of another holder did no harm.
        self.storm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a consumer ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A task of the consumer panicked. What it worked on has no verdict and will be delivered again.
    #[error("a task of lane {lane} panicked: {reason}")]
    Panicked {
        /// The lane.
        lane: LaneId,
        /// The panic's message, as far as it is known.
        reason: String,
    },
}

/// How a lane's task ended.
struct Ended {
    assignment: Assignment,
    exit: Result<Exit, String>,
}

struct Running {
    epoch: Epoch,
    inputs: mpsc::UnboundedSender<Input>,
}

impl<E, F, H> Consumer<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    /// Consumes until `stop` completes and everything is drained, or until something fails that this process
    /// cannot repair. Run it to its end: dropping it abandons the lanes, which costs a redelivery and nothing else.
    pub async fn run<S: RecordStream>(
        self,
        mut stream: S,
        control: Arc<dyn StreamControl>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), ConsumerError> {
        let batch = Batch {
            store: self.store,
            handler: self.handler,
            group: self.settings.topology.group.clone(),
            calls: Calls::new(self.settings.calls_max),
            straggler_deadline: self.settings.straggler_deadline,
            doubts: Doubts::default(),
            runtime: Arc::clone(&self.runtime),
        };
        let (told, mut ended) = mpsc::unbounded();
        let mut lanes = Lanes {
            pipeline: Arc::new(Pipeline {
                batch,
                decoder: self.decoder,
                publisher: self.publisher,
                runtime: self.runtime,
                control,
                health: self.health,
                metrics: DeliveryMetrics::new(&self.settings.topology.group),
                process: EventId::generate().as_uuid(),
                company: Arc::default(),
                storm: Mutex::new(StormGuard::new(self.settings.storm)),
                settings: self.settings,
            }),
            running: HashMap::new(),
            told,
            failure: None,
        };
        let stop = stop.fuse();
        pin_mut!(stop);
        loop {
            select_biased! {
                ended = ended.select_next_some() => lanes.ended(ended),
                event = stream.next().fuse() => match event {
                    Some(event) => lanes.handle(event),
                    None => break,
                },
                () = stop => lanes.pipeline.control.stop(),
            }
        }
        lanes.failure.map_or(Ok(()), Err)
    }
}

struct Lanes<E, F, H> {
    pipeline: Arc<Pipeline<E, F, H>>,
    running: HashMap<LaneId, Running>,
    told: mpsc::UnboundedSender<Ended>,
    failure: Option<ConsumerError>,
}

impl<E, F, H> Lanes<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    fn handle(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Assigned(assignment, arrival) => self.assigned(assignment, arrival),
            StreamEvent::Records(assignment, records) => self.tell(&assignment, Input::Records(records)),
            StreamEvent::Revoked(assignment) => self.tell(&assignment, Input::Drain),
            StreamEvent::Lost(assignment) => self.remove(&assignment),
            StreamEvent::Failed(error) => self.fail(error.into()),
        }
        self.pipeline.metrics.lanes.set(self.running.len() as f64);
    }

    fn assigned(&mut self, assignment: Assignment, arrival: Arrival) {
        let Pipeline { settings, runtime, .. } = &*self.pipeline;
        let Some(stage) = settings.topology.stage(&assignment.lane.topic) else {
            tracing::error!(lane = %assignment.lane, "assigned a topic that was not asked for");
            return;
        };
        let delay = match stage {
            Stage::Source => Duration::ZERO,
            Stage::Tier(index) => settings.topology.tiers[index].delay,
        };
        tracing::debug!(lane = %assignment.lane, epoch = assignment.epoch.0, "lane assigned");
        let lane = Lane::new(assignment.clone(), stage, delay, settings.clock_skew);
        let (inputs, received) = mpsc::unbounded();
        let driver = LaneDriver::new(Arc::clone(&self.pipeline), assignment.clone(), arrival, lane, received);
        let (told, ended) = (self.told.clone(), assignment.clone());
        let task = async move {
            let exit = AssertUnwindSafe(driver.run()).catch_unwind().await;
            let exit = exit.map_err(|panic| panic_text(&*panic).to_owned());
            // The consumer may be gone; then nobody is left to tell.
            drop(told.unbounded_send(Ended { assignment: ended, exit }));
        };
        runtime.spawn("lane", task.boxed());
        self.running.insert(assignment.lane, Running { epoch: assignment.epoch, inputs });
    }

    /// Passes an input to the lane if it is the same assignment (D-5).
    fn tell(&mut self, assignment: &Assignment, input: Input) {
        let running = self.running.get(&assignment.lane).filter(|running| running.epoch == assignment.epoch);
        let drain = matches!(input, Input::Drain);
        let told = running.is_some_and(|running| running.inputs.unbounded_send(input).is_ok());
        if drain && !told {
            // Nothing of it runs here, so there is nothing to wait for.
            self.pipeline.control.released(assignment);
        }
    }

    fn remove(&mut self, assignment: &Assignment) {
        if self.running.get(&assignment.lane).is_some_and(|running| running.epoch == assignment.epoch) {
            tracing::debug!(lane = %assignment.lane, epoch = assignment.epoch.0, "lane given up");
            self.running.remove(&assignment.lane);
        }
    }

    fn ended(&mut self, ended: Ended) {
        let Ended { assignment, exit } = ended;
        let panicked = |reason: String| ConsumerError::Panicked { lane: assignment.lane.clone(), reason };
        match exit {
            Ok(Exit::Released) => self.pipeline.control.released(&assignment),
            Ok(Exit::Restart) => self.pipeline.control.restart(&assignment),
            Ok(Exit::Abandoned) => {}
            Ok(Exit::UnitPanicked) => self.fail(panicked("a unit of work did not report".to_owned())),
            Err(reason) => self.fail(panicked(reason)),
        }
        self.remove(&assignment);
    }

    /// Keeps the first failure and stops; the other lanes are drained as at any stop.
    fn fail(&mut self, error: ConsumerError) {
        tracing::error!(%error, "consumer fails");
        self.failure.get_or_insert(error);
        self.pipeline.control.stop();
    }
}
