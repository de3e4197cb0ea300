//! Whether a topic may hold the only copy of an event. Only the rule; nothing is asked here.

use std::time::Duration;

use core_delivery::record::Topic;

/// What the brokers tell about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its name.
    pub topic: Topic,
    /// How many partitions it has.
    pub partitions: usize,
    /// The smallest number of replicas of a partition.
    pub replicas: usize,
    /// `max.message.bytes`.
    pub message_bytes: usize,
    /// `retention.ms`; `None` is for ever.
    pub retention: Option<Duration>,
    /// `retention.bytes` of a partition; `None` is without limit.
    pub retention_bytes: Option<u64>,
    /// Whether `cleanup.policy` has compaction.
    pub is_compacted: bool,
    /// `min.insync.replicas`.
    pub in_sync_min: usize,
}

impl TopicFacts {
    /// Why the topic must not hold copies, and how to change that: one sentence for each fault.
    pub(crate) fn faults(&self, message_bytes: usize, kept_for: Duration) -> Vec<String> {
        let mut faults = Vec::new();
        if self.is_compacted {
            faults.push(
                "cleanup.policy has compaction, which deletes all but the last copy of a key: set it to delete".into(),
            );
        }
        if let Some(bytes) = self.retention_bytes {
            faults.push(format!("retention.bytes={bytes} deletes copies that nobody has read: set it to -1"));
        }
        if let Some(retention) = self.retention.filter(|retention| *retention < kept_for) {
            let (is, needed) = (retention.as_millis(), kept_for.as_millis());
            faults.push(format!("retention.ms={is} is too short: set it to {needed} or more"));
        }
        if self.message_bytes < message_bytes {
            let is = self.message_bytes;
            faults.push(format!(
                "max.message.bytes={is} has no room for a record and its headers: set it to {message_bytes} or more"
            ));
        }
        if self.replicas >= 3 && self.in_sync_min < 2 {
            let replicas = self.replicas;
            faults.push(format!(
                "min.insync.replicas=1 acknowledges a copy that only one of {replicas} replicas has: set it to 2"
            ));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn fit() -> TopicFacts {
        TopicFacts {
            topic: Topic::new("orders.billing.dlq"),
            partitions: 6,
            replicas: 3,
            message_bytes: 2_000,
            retention: Some(7 * DAY),
            retention_bytes: None,
            is_compacted: false,
            in_sync_min: 2,
        }
    }

    #[test]
    fn a_topic_that_keeps_what_it_is_given_is_fit() {
        assert_eq!(fit().faults(2_000, 7 * DAY), [""; 0]);
        let for_ever = TopicFacts { retention: None, ..fit() };
        assert_eq!(for_ever.faults(2_000, 100 * DAY), [""; 0]);
        let single = TopicFacts { replicas: 1, in_sync_min: 1, ..fit() };
        assert_eq!(single.faults(2_000, DAY), [""; 0], "a single broker has nothing to wait for");
    }

    #[test]
    fn each_way_to_lose_a_copy_is_a_fault() {
        let unfit = [
            (TopicFacts { is_compacted: true, ..fit() }, "cleanup.policy"),
            (TopicFacts { retention_bytes: Some(1_000), ..fit() }, "retention.bytes=1000"),
            (TopicFacts { retention: Some(DAY), ..fit() }, "retention.ms=86400000"),
            (TopicFacts { message_bytes: 1_999, ..fit() }, "max.message.bytes=1999"),
            (TopicFacts { in_sync_min: 1, ..fit() }, "min.insync.replicas"),
        ];
        for (topic, named) in unfit {
            let faults = topic.faults(2_000, 7 * DAY);
            assert!(faults.len() == 1 && faults[0].contains(named), "{faults:?}");
        }
    }
}
