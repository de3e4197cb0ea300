//! The poll thread's part between an assignment and a lane's first record: what the broker knows is learned on a
//! thread beside it, the kernel is told, and the client is led to where the kernel starts. It decides no start.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use core_delivery::ports::StreamEvent;
use core_delivery::record::{Assignment, LaneId};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tracing::{debug, info, warn};

use crate::control::Shared;
use crate::lookup::{Findings, Lookup, LookupError};
use crate::positions;
use crate::rebalance::MemberContext;
use crate::settings::KafkaSettings;

/// How long one attempt to learn the arrivals may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);
/// The pause after the first failed attempt; it doubles up to the largest.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How often the client is asked again to go to a lane's start, and how long it may take to answer.
const SEEK_INTERVAL: Duration = Duration::from_millis(20);
const SEEK_LIMIT: Duration = Duration::from_millis(500);

pub(crate) struct Arriving<'c> {
    consumer: &'c BaseConsumer<MemberContext>,
    shared: &'c Shared,
    settings: KafkaSettings,
    group: String,
    asked: Option<Asked>,
    failures: u32,
    next_ask: Instant,
    next_seek: Instant,
}

/// An attempt that runs.
struct Asked {
    /// As they were when it began: what is learned counts for these epochs only, because a former owner commits until
    /// the lane is ours.
    lanes: Vec<Assignment>,
    answer: Receiver<Result<Findings, LookupError>>,
}

impl<'c> Arriving<'c> {
    pub(crate) fn new(
        consumer: &'c BaseConsumer<MemberContext>,
        shared: &'c Shared,
        settings: KafkaSettings,
        group: String,
    ) -> Self {
        let now = Instant::now();
        Self { consumer, shared, settings, group, asked: None, failures: 0, next_ask: now, next_seek: now }
    }

    /// Brings each lane one step further, if it can. Never waits for a broker.
    pub(crate) fn turn(&mut self) {
        self.begin_anew();
        self.listen();
        self.ask();
        self.lead();
    }

    fn begin_anew(&self) {
        let given_up = self.shared.table().begin_anew();
        for old in given_up {
            info!(lane = %old.lane, epoch = old.epoch.0, "lane given up, to be assigned anew");
            self.shared.send(StreamEvent::Lost(old));
        }
    }

    fn ask(&mut self) {
        if self.asked.is_some() || Instant::now() < self.next_ask {
            return;
        }
        let lanes = self.shared.table().unannounced();
        if lanes.is_empty() {
            self.failures = 0;
            return;
        }
        let (sender, answer) = channel();
        let (settings, group) = (self.settings.clone(), self.group.clone());
        let wanted: Vec<LaneId> = lanes.iter().map(|assignment| assignment.lane.clone()).collect();
        // A client of its own: the member's calls for this block, and remember a cluster and a coordinator of before.
        let asking = thread::Builder::new().name("kafka-arrivals".into()).spawn(move || {
            let lookup = Lookup::new(&settings, &group, LOOKUP_LIMIT);
            let found = lookup.as_ref().map_err(LookupError::clone).map(|lookup| lookup.arrivals(&wanted));
            // Before the client goes, which may take a moment. Nobody listens any more if the member has left.
            sender.send(found).ok();
        });
        match asking {
            Ok(_) => self.asked = Some(Asked { lanes, answer }),
            Err(error) => {
                let text = format!("no thread to ask the brokers with: {error}");
                self.failed(&LookupError { code: RDKafkaErrorCode::Fail, text }, lanes.len());
            }
        }
    }

    fn listen(&mut self) {
        let Some(asked) = &self.asked else { return };
        let found = match asked.answer.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => {
                self.asked = None;
                self.next_ask = Instant::now() + BACKOFF_MAX;
                if !self.shared.is_stopping() {
                    self.shared.fail("asking for a lane's arrival panicked, which is a bug: start again".into());
                }
                return;
            }
        };
        let lanes = self.asked.take().map(|asked| asked.lanes).unwrap_or_default();
        let asked = lanes.len();
        match found {
            Ok(mut findings) => {
                let mut announced = 0;
                for assignment in lanes {
                    let Some(arrival) = findings.arrivals.remove(&assignment.lane) else { continue };
                    announced += 1;
                    if self.shared.table().announce(&assignment) {
                        let (committed, end) = (arrival.committed.map(|next| next.0), arrival.end.0);
                        info!(lane = %assignment.lane, epoch = assignment.epoch.0, committed, end, "lane announced");
                        self.shared.send(StreamEvent::Assigned(assignment, arrival));
                    }
                }
                match findings.trouble {
                    Some(trouble) => self.failed(&trouble, asked - announced),
                    None => self.failures = 0,
                }
            }
            Err(error) => self.failed(&error, asked),
        }
    }

    fn failed(&mut self, error: &LookupError, lanes: usize) {
        let wait = BACKOFF.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
        self.failures += 1;
        self.next_ask = Instant::now() + wait;
        let text = format!("{lanes} lanes wait, because not all is known that says where they start: {error}");
        if self.consumer.context().callbacks.health.failed(error.code, &text) {
            warn!(%error, lanes, "lanes wait for the brokers to tell where they can start");
        } else {
            debug!(%error, lanes, "lanes wait for the brokers to tell where they can start");
        }
    }

    /// What was read before is thrown away by the client, and its position says nothing until it reads again.
    fn lead(&mut self) {
        let now = Instant::now();
        if now < self.next_seek {
            return;
        }
        let starting = self.shared.table().starting();
        if starting.is_empty() {
            return;
        }
        self.next_seek = now + SEEK_INTERVAL;
        let led = positions::seek(self.consumer, &starting, SEEK_LIMIT);
        let mut table = self.shared.table();
        for (lane, position) in starting.iter().filter(|(lane, _)| led.contains(lane)) {
            info!(%lane, position, "lane started");
            table.started(lane);
        }
    }
}
