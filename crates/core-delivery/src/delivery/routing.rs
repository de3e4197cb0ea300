//! Where a failed delivery goes and what is written on its copy. Pure.

use crate::claim::ConsumerGroup;
use crate::event::UnixMillis;
use crate::headers::{Journey, Note, copy};
use crate::ports::{Effect, ErrorClass};
use crate::record::{OutgoingRecord, Record};

use super::retry::Route;
use super::topology::{Stage, Topology};
use super::verdict::{Failure, Retry, Verdict};

/// The copy of a failed delivery and the verdict that its acknowledgement gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dispatch {
    pub(super) copy: OutgoingRecord,
    pub(super) verdict: Verdict,
}

/// Decides where a failed delivery goes. `journey` is what the record had been through when it arrived.
pub(super) fn dispatch(
    topology: &Topology,
    stage: Stage,
    record: &Record,
    mut journey: Journey,
    failure: &Failure,
    now: UnixMillis,
) -> Dispatch {
    let partition = journey.origin.lane.partition;
    journey.attempts = journey.attempts.saturating_add(1);
    journey.first_failure.get_or_insert(now);
    journey.in_doubt = match failure.effect {
        Effect::Unknown => true,
        Effect::None => journey.in_doubt,
        Effect::Never => false,
    };
    let route = match failure.retry {
        Retry::After(wait) => topology.schedule().route(stage, wait),
        Retry::Never => Route::Exhausted,
    };
    match route {
        Route::Tier(index) => {
            let tier = &topology.tiers[index];
            journey.due = Some(now.plus(tier.delay));
            let note = note(&topology.group, &journey, &failure.class, &failure.text);
            Dispatch { copy: copy(record, tier.topic.clone(), partition, &note), verdict: Verdict::Retried }
        }
        Route::Exhausted => {
            journey.due = None;
            // Once a try had an unknown outcome, nobody may read "not done" from a dead letter.
            let class = if journey.in_doubt { ErrorClass::IN_DOUBT } else { failure.class.clone() };
            let note = note(&topology.group, &journey, &class, &failure.text);
            Dispatch {
                copy: copy(record, topology.dead_letters.clone(), partition, &note),
                verdict: Verdict::DeadLettered(class),
            }
        }
    }
}

fn note<'a>(group: &'a ConsumerGroup, journey: &'a Journey, class: &'a ErrorClass, error_text: &'a str) -> Note<'a> {
    Note { group, journey, class, error_text }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::topology::Tier;
    use crate::record::{LaneId, Offset, Topic};

    const NOW: UnixMillis = UnixMillis(50_000);

    fn topology() -> Topology {
        let tier = |name: &str, seconds| Tier { topic: Topic::new(name), delay: Duration::from_secs(seconds) };
        Topology {
            group: ConsumerGroup::new("billing"),
            source: Topic::new("orders"),
            tiers: vec![tier("retry.10s", 10), tier("retry.1m", 60)],
            dead_letters: Topic::new("dlq"),
        }
    }

    fn transient(effect: Effect) -> Failure {
        Failure { class: ErrorClass::RETRIES_EXHAUSTED, text: "503".into(), retry: Retry::After(None), effect }
    }

    fn go(stage: Stage, from: Option<&OutgoingRecord>, failure: &Failure) -> Dispatch {
        let lane = LaneId { topic: Topic::new("orders"), partition: 4 };
        let record = Record {
            offset: Offset(9),
            timestamp: Some(UnixMillis(1)),
            key: Some("o-1".into()),
            payload: Some("{}".into()),
            headers: from.map_or(vec![], |copy| copy.headers.clone()),
            unreadable_headers: 0,
        };
        let journey = match stage {
            Stage::Source => Journey::begin(&lane, &record),
            Stage::Tier(_) => Journey::resume(&lane, &record),
        };
        dispatch(&topology(), stage, &record, journey, failure, NOW)
    }

    fn header(copy: &OutgoingRecord, key: &str) -> Option<String> {
        let header = copy.headers.iter().find(|header| header.key == key)?;
        header.value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_transient_failure_waits_in_the_next_tier_on_the_same_partition() {
        let first = go(Stage::Source, None, &transient(Effect::None));
        assert_eq!(first.verdict, Verdict::Retried);
        assert_eq!(first.copy.topic.as_str(), "retry.10s");
        assert_eq!(first.copy.partition, 4);
        assert_eq!(header(&first.copy, "delivery-due").as_deref(), Some("60000"));
        assert_eq!(header(&first.copy, "delivery-attempts").as_deref(), Some("1"));
        let second = go(Stage::Tier(0), Some(&first.copy), &transient(Effect::None));
        assert_eq!(second.copy.topic.as_str(), "retry.1m");
        assert_eq!(header(&second.copy, "delivery-attempts").as_deref(), Some("2"));
        assert_eq!(header(&second.copy, "delivery-origin-offset").as_deref(), Some("9"));
    }

    #[test]
    fn after_the_last_tier_it_is_a_dead_letter_with_its_history() {
        let last = go(Stage::Tier(1), None, &transient(Effect::None));
        assert_eq!(last.verdict, Verdict::DeadLettered(ErrorClass::RETRIES_EXHAUSTED));
        assert_eq!(last.copy.topic.as_str(), "dlq");
        assert_eq!(header(&last.copy, "delivery-error-text").as_deref(), Some("503"));
        assert_eq!(header(&last.copy, "delivery-due"), None);
    }

    #[test]
    fn an_unknown_outcome_is_never_forgotten_on_the_way_to_a_dead_letter() {
        let first = go(Stage::Source, None, &transient(Effect::Unknown));
        let dead = Failure::dead(ErrorClass::PERMANENT, "402");
        let second = go(Stage::Tier(0), Some(&first.copy), &dead);
        assert_eq!(second.verdict, Verdict::DeadLettered(ErrorClass::IN_DOUBT));
        assert_eq!(header(&second.copy, "delivery-error-class").as_deref(), Some("in_doubt"));
        assert_eq!(go(Stage::Source, None, &dead).verdict, Verdict::DeadLettered(ErrorClass::PERMANENT));
        let settled = Failure { effect: Effect::Never, ..dead };
        let settled = go(Stage::Tier(0), Some(&first.copy), &settled);
        assert_eq!(settled.verdict, Verdict::DeadLettered(ErrorClass::PERMANENT), "the other side was asked");
    }
}
