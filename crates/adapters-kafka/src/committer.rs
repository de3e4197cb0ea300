//! The poll thread's commits: positions that moved are sent at an interval, all of them once in a while, and answers
//! are collected without waiting. Which positions are right is the lane table's rule.

use std::time::{Duration, Instant};

use core_delivery::crash::{CrashPoint, reached};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use tracing::{debug, warn};

use crate::control::Shared;
use crate::native::Commits;
use crate::positions;
use crate::rebalance::MemberContext;

/// All positions are sent again this often, so that a commit that failed is made up for.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);
/// A commit without an answer for this long is not waited for any more.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Committer<'c> {
    consumer: &'c BaseConsumer<MemberContext>,
    shared: &'c Shared,
    commits: Commits<'c>,
    commit_every: Duration,
    next_commit: Instant,
    next_repeat: Instant,
    last_sent: Instant,
}

impl<'c> Committer<'c> {
    pub(crate) fn new(consumer: &'c BaseConsumer<MemberContext>, shared: &'c Shared, commit_every: Duration) -> Self {
        let now = Instant::now();
        Self {
            consumer,
            shared,
            commits: Commits::new(consumer),
            commit_every,
            next_commit: now + commit_every,
            next_repeat: now + REPEAT_INTERVAL,
            last_sent: now,
        }
    }

    /// Sends what is due. Returns at once.
    pub(crate) fn turn(&mut self) {
        if Instant::now() >= self.next_commit {
            self.commit();
        }
    }

    /// Lets positions follow over what is no record, where nothing is unsettled.
    pub(crate) fn follow(&self) {
        if !self.shared.table().has_settled() {
            return;
        }
        let reached = positions::reached(self.consumer);
        let mut table = self.shared.table();
        reached.iter().for_each(|(lane, next)| table.reached(lane, *next));
    }

    fn commit(&mut self) {
        let now = Instant::now();
        self.next_commit = now + self.commit_every;
        self.collect_answers();
        if self.commits.in_flight() > 0 && now - self.last_sent < ANSWER_LIMIT {
            return;
        }
        self.follow();
        let is_repeat = now >= self.next_repeat;
        let due = if is_repeat { self.shared.table().positions() } else { self.shared.table().moved() };
        if is_repeat {
            self.next_repeat = now + REPEAT_INTERVAL;
        }
        let stored = if due.is_empty() { Vec::new() } else { positions::store(self.consumer, &due) };
        if stored.is_empty() {
            return;
        }
        let sent = positions::list_with_offsets(&stored).map_err(|error| error.to_string());
        match sent.and_then(|list| self.commits.send(&list).map_err(|code| code.to_string())) {
            Ok(()) => {
                self.last_sent = now;
                let mut table = self.shared.table();
                stored.iter().for_each(|(lane, next)| table.set_sent(lane, *next));
            }
            Err(error) => warn!(error, "positions could not be sent"),
        }
    }

    fn collect_answers(&mut self) {
        while let Some(answer) = self.commits.answer(Duration::ZERO) {
            let Err(code) = answer else {
                self.consumer.context().callbacks.health.succeeded();
                reached(CrashPoint::OffsetCommitted);
                continue;
            };
            match code {
                // The lanes are others' by now; a repeat of the owned ones is due anyway.
                RDKafkaErrorCode::UnknownMemberId
                | RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::StaleMemberEpoch
                | RDKafkaErrorCode::RebalanceInProgress
                | RDKafkaErrorCode::AssignmentLost
                | RDKafkaErrorCode::NoOffset => debug!(error = %code, "a commit came too late"),
                _ => {
                    let error = format!("a commit failed: {code}");
                    if self.consumer.context().callbacks.health.failed(code, &error) {
                        warn!(error = %code, "a commit failed and will be repeated");
                    }
                }
            }
        }
    }
}
