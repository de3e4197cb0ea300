//! What happens when lanes come and go. It runs inside the poll call, on the poll thread, and may block there only
//! for as long as the drain and the last commit take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use core_delivery::crash::{CrashPoint, reached};
use core_delivery::ports::StreamEvent;
use core_delivery::record::{Assignment, LaneId};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Statistics, TopicPartitionList};
use tracing::{debug, info, warn};

use crate::context::Callbacks;
use crate::control::Shared;
use crate::native::Commits;
use crate::positions;

/// How long the last commit of lanes that are given away may take.
pub(crate) const COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// The callbacks of a group's member.
pub(crate) struct MemberContext {
    pub(crate) callbacks: Callbacks,
    pub(crate) shared: Arc<Shared>,
    pub(crate) drain_limit: Duration,
}

type Member = BaseConsumer<MemberContext>;

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.callbacks.log(level, facility, text);
    }

    fn stats(&self, _: Statistics) {}
    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: ClientError, reason: &str) {
        self.callbacks.error(error, reason);
    }
}

impl ConsumerContext for MemberContext {
    // The library's own version ignores the errors of assign and unassign.
    fn rebalance(&self, consumer: &Member, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.take_over(consumer, list),
            _ => self.give_away(consumer, list),
        }
    }
}

impl MemberContext {
    /// An empty list is normal with the cooperative protocol. The lanes are paused, and the kernel is told of them when
    /// all is known that it needs to say where they start.
    fn take_over(&self, consumer: &Member, list: &TopicPartitionList) {
        let assigned = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
            _ => consumer.assign(list),
        };
        let lanes = positions::lanes_of(list);
        if let Err(error) = assigned {
            // Lanes that are ours but not read would stand still unseen.
            self.shared.fail(format!("{} lanes could not be taken over ({error}): start again", lanes.len()));
            return;
        }
        self.callbacks.health.succeeded();
        {
            let mut table = self.shared.table();
            for assignment in lanes.into_iter().map(|lane| table.assign(lane)) {
                info!(lane = %assignment.lane, epoch = assignment.epoch.0, "lane assigned");
            }
        }
        self.pause_again(consumer);
    }

    /// A lane that the kernel was not told of goes in silence: nothing of it can run, and nothing of it is committed.
    fn give_away(&self, consumer: &Member, list: &TopicPartitionList) {
        let lanes = positions::lanes_of(list);
        let assignments = self.shared.table().to_drain(&lanes);
        if assignments.is_empty() {
            debug!("nothing to drain");
        } else if consumer.assignment_lost() {
            // Others may own them already: nothing is committed.
            warn!(lanes = assignments.len(), "lanes lost");
        } else {
            self.drain(&assignments);
            self.commit(consumer, &assignments);
        }
        self.let_go(consumer, &lanes);
        let unassigned = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
            _ => consumer.unassign(),
        };
        if let Err(error) = unassigned {
            if self.shared.is_stopping() {
                warn!(%error, "lanes could not be given away in order");
            } else {
                self.shared.fail(format!("{} lanes could not be given away ({error}): start again", lanes.len()));
            }
        }
        self.pause_again(consumer);
    }

    fn drain(&self, assignments: &[Assignment]) {
        let started = Instant::now();
        for assignment in assignments {
            self.shared.send(StreamEvent::Revoked(assignment.clone()));
        }
        if self.shared.wait_released(assignments, self.drain_limit) {
            debug!(lanes = assignments.len(), elapsed = ?started.elapsed(), "lanes drained");
        } else {
            warn!(
                lanes = assignments.len(),
                limit = ?self.drain_limit,
                "lanes are given away before they are drained: what has no verdict yet is delivered again"
            );
        }
    }

    /// Commits what the lanes have settled. Without success it is delivered again, to the next owner.
    fn commit(&self, consumer: &Member, assignments: &[Assignment]) {
        let settled: Vec<(LaneId, i64)> = {
            let table = self.shared.table();
            assignments.iter().filter_map(|a| Some((a.lane.clone(), table.position(a)?))).collect()
        };
        if settled.is_empty() {
            return;
        }
        let stored = positions::store(consumer, &settled);
        if stored.is_empty() {
            return;
        }
        match positions::list_with_offsets(&stored) {
            Ok(list) => {
                let mut commits = Commits::new(consumer);
                let answer = commits.send(&list).map(|()| commits.answer(COMMIT_LIMIT));
                match answer {
                    Ok(Some(Ok(()))) => {
                        debug!(lanes = stored.len(), "positions of drained lanes committed");
                        reached(CrashPoint::OffsetCommitted);
                    }
                    Ok(Some(Err(code))) | Err(code) => {
                        warn!(error = %code, lanes = stored.len(), "positions of drained lanes were not committed");
                    }
                    Ok(None) => {
                        warn!(limit = ?COMMIT_LIMIT, "the last commit of drained lanes has no answer within the limit");
                    }
                }
            }
            Err(error) => warn!(%error, "positions of drained lanes were not committed"),
        }
    }

    fn let_go(&self, consumer: &Member, lanes: &[LaneId]) {
        let (lost, paused): (Vec<Assignment>, Vec<LaneId>) = {
            let mut table = self.shared.table();
            let paused = table.paused().into_iter().filter(|lane| lanes.contains(lane)).collect();
            (lanes.iter().filter_map(|lane| table.remove(lane)).collect(), paused)
        };
        for assignment in lost {
            info!(lane = %assignment.lane, epoch = assignment.epoch.0, "lane given away");
            self.shared.send(StreamEvent::Lost(assignment));
        }
        // librdkafka keeps the flag with the partition: it would come back paused.
        if !paused.is_empty() {
            drop(positions::resume(consumer, &paused));
        }
    }

    /// New lanes wait for their start, and the pauses of lanes that stay are ours to keep over a rebalance.
    fn pause_again(&self, consumer: &Member) {
        let paused = self.shared.table().paused();
        if paused.is_empty() {
            return;
        }
        let still = positions::pause(consumer, &paused);
        let mut table = self.shared.table();
        for lane in paused.iter().filter(|lane| !still.contains(lane)) {
            table.set_paused(lane, false);
        }
    }
}
