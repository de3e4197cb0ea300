//! The topics of one consumer: its source, its retry tiers and its dead letters. Pure.

use std::time::Duration;

use crate::claim::ConsumerGroup;
use crate::record::Topic;

use super::retry::RetrySchedule;

/// One retry topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub topic: Topic,
    /// How long an event waits in it.
    pub delay: Duration,
}

/// The topics of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The group.
    pub group: ConsumerGroup,
    /// Where events come from.
    pub source: Topic,
    /// Where failed events wait, in the order in which they are visited.
    pub tiers: Vec<Tier>,
    /// Where events end that cannot be handled.
    pub dead_letters: Topic,
}

/// How far an event has come on its way through the topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Read from the source topic.
    Source,
    /// Read from this retry tier.
    Tier(usize),
}

impl Topology {
    /// Which stage a topic is; `None` for a topic that this consumer does not read.
    pub fn stage(&self, topic: &Topic) -> Option<Stage> {
        if *topic == self.source {
            return Some(Stage::Source);
        }
        self.tiers.iter().position(|tier| tier.topic == *topic).map(Stage::Tier)
    }

    /// The topics that are read: the source and the tiers.
    pub fn consumed(&self) -> Vec<Topic> {
        std::iter::once(&self.source).chain(self.tiers.iter().map(|tier| &tier.topic)).cloned().collect()
    }

    /// The schedule of the tiers.
    pub fn schedule(&self) -> RetrySchedule {
        RetrySchedule::new(self.tiers.iter().map(|tier| tier.delay).collect())
    }
}
