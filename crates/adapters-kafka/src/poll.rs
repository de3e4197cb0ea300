//! The poll thread: it reads, delivers, regulates and commits, and never blocks for longer than a few milliseconds
//! outside of a rebalance. No record is interpreted here.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use core_delivery::ports::StreamEvent;
use core_delivery::record::{LaneId, Topic};
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use tracing::{debug, info, warn};

use crate::arriving::Arriving;
use crate::burst::{self, Burst};
use crate::committer::Committer;
use crate::control::Shared;
use crate::failure::reason_to_fail;
use crate::lanes::Delivery;
use crate::positions;
use crate::rebalance::{COMMIT_LIMIT, MemberContext};
use crate::settings::KafkaSettings;

/// How long one wake waits for the first record.
const WAIT: Duration = Duration::from_millis(5);
/// How much one wake reads at most.
const BURST_RECORDS: usize = 1_000;
const BURST_BYTES: usize = 4 << 20;
/// What leaving the group may take beyond draining and committing.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

type Member = BaseConsumer<MemberContext>;

/// Polls until the stream is stopped or dropped, then leaves the group and ends the stream.
pub(crate) fn run(consumer: Member, shared: &Arc<Shared>, topics: Vec<Topic>, settings: KafkaSettings, group: String) {
    let _end = End(Arc::clone(shared));
    let leave_limit = settings.drain_limit + COMMIT_LIMIT + LEAVE_LIMIT;
    Poller {
        consumer: &consumer,
        committer: Committer::new(&consumer, shared, settings.commit_interval),
        shared,
        topics,
        arriving: Arriving::new(&consumer, shared, settings, group.clone()),
        group,
        leave_limit,
        is_leaving: false,
    }
    .run();
    close_within(consumer, leave_limit);
    info!("consumer closed");
}

/// Ends the stream however the thread ends: a panic is a failure of the service, never silence.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("the poll thread panicked, which is a bug: its message is in the log; start again".into());
        }
        self.0.close();
    }
}

/// Dropping a consumer runs callbacks and loops until it has left, without a limit of its own.
fn close_within(consumer: Member, limit: Duration) {
    let (done, closed) = channel();
    let closer = thread::Builder::new().name("kafka-close".into()).spawn(move || {
        drop(consumer);
        done.send(()).ok();
    });
    match closer {
        Ok(_) => match closed.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                warn!(?limit, "the consumer could not be closed in time: its lanes are free after the session timeout");
            }
            Err(RecvTimeoutError::Disconnected) => warn!("closing the consumer panicked"),
        },
        Err(error) => warn!(%error, "no thread to close the consumer with"),
    }
}

struct Poller<'c> {
    consumer: &'c Member,
    committer: Committer<'c>,
    shared: &'c Shared,
    topics: Vec<Topic>,
    arriving: Arriving<'c>,
    group: String,
    leave_limit: Duration,
    is_leaving: bool,
}

impl Poller<'_> {
    fn run(mut self) {
        while !self.shared.is_stopping() && !self.shared.is_abandoned() {
            self.turn();
        }
        self.leave();
    }

    fn turn(&mut self) {
        let burst = self.read();
        self.deliver(burst);
        self.arriving.turn();
        self.regulate();
        self.committer.turn();
    }

    /// Leaving revokes all lanes, and the rebalance callback drains and commits them.
    fn leave(&mut self) {
        self.shared.begin_stop();
        // The last time: from here on records are read and dropped, and the consumer's position says nothing.
        self.committer.follow();
        self.is_leaving = true;
        self.consumer.unsubscribe();
        let deadline = Instant::now() + self.leave_limit;
        while !self.shared.table().is_empty() {
            if Instant::now() >= deadline {
                warn!("the lanes were not revoked in time");
                break;
            }
            drop(self.read());
        }
        let left = self.shared.table().lanes();
        for lane in left {
            let known = self.shared.table().remove(&lane);
            if let Some(assignment) = known {
                self.shared.send(StreamEvent::Lost(assignment));
            }
        }
    }

    /// Reads what is there, at most a burst. Nothing is kept once the member leaves.
    fn read(&mut self) -> Burst {
        let mut burst = Burst::default();
        let mut wait = WAIT;
        while burst.records() < BURST_RECORDS && burst.bytes() < BURST_BYTES {
            // One call runs at most one rebalance and then returns nothing, so what was read before it is delivered,
            // or found to be stale, before the next.
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => self.keep(&mut burst, &message),
                Some(Err(error)) => {
                    self.judge(&error);
                    break;
                }
            }
            wait = Duration::ZERO;
        }
        burst
    }

    fn keep(&self, burst: &mut Burst, message: &BorrowedMessage<'_>) {
        if self.is_leaving {
            return;
        }
        let (topic, partition) = (message.topic(), message.partition());
        let known = burst.assignment(topic, partition).cloned();
        let assignment = known.or_else(|| {
            let topic = self.topics.iter().find(|known| known.as_str() == topic)?;
            self.shared.table().running(&LaneId { topic: topic.clone(), partition })
        });
        match assignment {
            Some(assignment) => burst.push(assignment, burst::record(message)),
            None => debug!(topic, partition, offset = message.offset(), "a record of a lane that does not run"),
        }
    }

    fn deliver(&self, burst: Burst) {
        if burst.records() == 0 {
            return;
        }
        self.consumer.context().callbacks.health.succeeded();
        for run in burst.into_runs() {
            let lane = run.assignment;
            let counted = self.shared.table().deliver(&lane, run.first, run.last, run.records.len(), run.bytes);
            match counted {
                Delivery::Accepted => self.shared.send(StreamEvent::Records(lane, run.records)),
                Delivery::Stale => debug!(lane = %lane.lane, "records of a lane that was given up"),
                Delivery::Reset => {
                    warn!(lane = %lane.lane, offset = run.first, "the partition was reset to an earlier offset");
                }
            }
        }
    }

    fn regulate(&self) {
        let flow = self.shared.table().flow();
        if !flow.pause.is_empty() {
            let paused = positions::pause(self.consumer, &flow.pause);
            let mut table = self.shared.table();
            paused.iter().for_each(|lane| table.set_paused(lane, true));
        }
        if !flow.resume.is_empty() {
            let resumed = positions::resume(self.consumer, &flow.resume);
            let mut table = self.shared.table();
            resumed.iter().for_each(|lane| table.set_paused(lane, false));
        }
    }

    fn judge(&self, error: &ClientError) {
        let health = &self.consumer.context().callbacks.health;
        let last_words = health.last_error();
        let fatal = self.consumer.client().fatal_error();
        if let Some(reason) = reason_to_fail(error, fatal, last_words.as_deref(), &self.group) {
            if !self.shared.is_stopping() {
                self.shared.fail(reason);
            }
            return;
        }
        // The error callback has already told, unless the error came with a message.
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if last_words.is_none() && health.failed(code, &error.to_string()) {
            warn!(%error, "the consumer reports an error");
        }
    }
}
