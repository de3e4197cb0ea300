//! One life of one process: the real consumer on the model's ports, and what it says to the broker.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::ConsumerGroup;
use core_delivery::delivery::{Consumer, ConsumerSettings, Health, StormLimits, Tier, Topology};
use core_delivery::ports::{Progress, PublishError, Publisher, RecordStream, StreamControl, StreamEvent};
use core_delivery::record::{Assignment, Committable, OutgoingRecord, Topic};
use futures::channel::{mpsc, oneshot};
use futures::future::FutureExt;
use futures::stream::StreamExt;

use crate::broker::Broker;
use crate::executor::{Life, LifeRuntime};
use crate::handler::Handler;
use crate::probe::{Kind, PARTITIONS, Place, ProbeDecoder, TOPICS, lane_no, parse};
use crate::store::Store;
use crate::world::Context;

/// A header that is not the kernel's, and is cut off where a copy is too large.
pub const FOREIGN_HEADER: &str = "trace";

fn settings() -> ConsumerSettings {
    let tier = |index: usize, seconds| Tier { topic: Topic::new(TOPICS[index]), delay: Duration::from_secs(seconds) };
    ConsumerSettings {
        topology: Topology {
            group: ConsumerGroup::new("model"),
            source: Topic::new(TOPICS[0]),
            tiers: vec![tier(1, 2), tier(2, 5)],
            dead_letters: Topic::new(TOPICS[3]),
        },
        batch_max: 4,
        calls_max: 3,
        straggler_deadline: Duration::from_millis(500),
        storm: StormLimits { share: 0.5, least: 12, window: Duration::from_secs(30), in_a_row: 5 },
        clock_skew: Duration::from_secs(300),
    }
}

/// Starts a process. What is left of it here is its health, and the sender that asks it to stop.
pub fn start(context: &Context, broker: &Broker, store: &Store, life: Life) -> (Health, oneshot::Sender<()>) {
    let (events, stream) = mpsc::unbounded();
    broker.join(life, events);
    let health = Health::default();
    let Context { choices, executor, .. } = context.clone();
    let consumer = Consumer {
        settings: settings(),
        store: Arc::new(store.clone()),
        handler: Arc::new(Handler { context: context.clone(), life }),
        decoder: Arc::new(ProbeDecoder),
        publisher: Arc::new(Outbox { context: context.clone(), broker: broker.clone() }),
        runtime: Arc::new(LifeRuntime { life, executor, choices }),
        health: health.clone(),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (broker, control) = (broker.clone(), Arc::new(Control { broker: broker.clone(), life }));
    let run = async move {
        let ended = consumer.run(Stream(stream), control, stopped.map(|_| ())).await;
        broker.ended(life, ended.map_err(|error| error.to_string()));
    };
    context.executor.spawn(life, "consumer", Box::pin(run));
    (health, stop)
}

struct Stream(mpsc::UnboundedReceiver<StreamEvent>);

#[async_trait]
impl RecordStream for Stream {
    async fn next(&mut self) -> Option<StreamEvent> {
        self.0.next().await
    }
}

struct Control {
    broker: Broker,
    life: Life,
}

impl StreamControl for Control {
    fn start(&self, assignment: &Assignment, position: Committable) {
        self.broker.start(self.life, assignment, position.0);
    }

    fn restart(&self, assignment: &Assignment) {
        self.broker.restart(self.life, assignment);
    }

    fn progress(&self, assignment: &Assignment, progress: Progress) {
        self.broker.progress(self.life, assignment, progress);
    }

    fn released(&self, assignment: &Assignment) {
        self.broker.released(self.life, assignment);
    }

    fn stop(&self) {
        self.broker.stop(self.life);
    }
}

/// Writes copies, or not, and tells the truth about it, or nothing.
struct Outbox {
    context: Context,
    broker: Broker,
}

#[async_trait]
impl Publisher for Outbox {
    async fn publish(&self, record: &OutgoingRecord) -> Result<(), PublishError> {
        let Context { choices, executor, profile, truth, .. } = &self.context;
        let source = parse(record.payload.as_deref()).expect("the payload is untouched");
        let lane = lane_no(&record.topic, record.partition).expect("a lane of the model");
        if lane < PARTITIONS || lane / PARTITIONS <= source.place.lane / PARTITIONS {
            truth.report("routes", format!("{:?} was sent to {}", source.place, record.topic));
        }
        let text = record.headers.iter().find(|header| header.key == "delivery-error-text");
        let text = text.and_then(|header| header.value.as_deref()).unwrap_or_default();
        if text.starts_with(b"kills the process") {
            choices.note(|| format!("{:?} is given up as what kills", source.content));
            if source.content.kind() != Kind::Deadly {
                truth.report("innocent", format!("{:?} kills nobody, and is said to", source.content));
            }
        }
        executor.pause().await;
        let unavailable =
            || PublishError::Unavailable { topic: record.topic.to_string(), source: "no acknowledgement".into() };
        let Place { lane: from, offset } = source.place;
        let fault = if choices.chance(profile.publisher) { 1 + choices.pick(5) } else { 0 };
        choices.note(|| format!("copy of lane {from} offset {offset} to {}, fault {fault}", record.topic));
        match fault {
            1 => return Err(unavailable()),
            2 => {
                self.broker.write(lane, source.content, record.headers.clone());
                executor.pause().await;
                return Err(unavailable());
            }
            3 if record.headers.iter().any(|header| header.key == FOREIGN_HEADER) => {
                choices.note(|| "it is too large".to_owned());
                return Err(PublishError::TooLarge { topic: record.topic.to_string() });
            }
            4 => executor.sleep(Duration::from_millis(700)).await,
            _ => {}
        }
        self.broker.write(lane, source.content, record.headers.clone());
        match fault {
            5 => executor.sleep(Duration::from_millis(2_500)).await,
            _ => executor.pause().await,
        }
        truth.acknowledged(source.place);
        Ok(())
    }
}
