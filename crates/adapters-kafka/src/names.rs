//! The names of retry and dead letter topics, and what a topic's name may be. Pure text.

use std::time::Duration;

use core_delivery::record::Topic;

use crate::settings::SettingsError;

/// The retry topic of a group and a delay: `<topic>.<group>.retry.<delay>`, with the delay in the largest unit that
/// leaves no fraction (`200ms`, `10s`, `1m`, `2h`).
pub fn retry_topic(topic: &Topic, group: &str, delay: Duration) -> Topic {
    Topic::new(format!("{topic}.{group}.retry.{}", delay_name(delay)))
}

/// The dead letter topic of a group: `<topic>.<group>.dlq`.
pub fn dead_letter_topic(topic: &Topic, group: &str) -> Topic {
    Topic::new(format!("{topic}.{group}.dlq"))
}

fn delay_name(delay: Duration) -> String {
    let millis = delay.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match units.into_iter().find(|(size, _)| millis > 0 && millis.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", millis / size),
        None => format!("{millis}ms"),
    }
}

/// Refuses a name that a broker would refuse.
pub(crate) fn check_topic(topic: &Topic) -> Result<(), SettingsError> {
    let name = topic.as_str();
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = !name.is_empty() && name.len() <= 249 && name != "." && name != "..";
    if is_name && name.chars().all(is_legal) {
        return Ok(());
    }
    let reason = "must be a topic's name: at most 249 letters, digits, dots, hyphens or underscores";
    Err(SettingsError::Invalid { setting: "topic", reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_topics_are_named_after_group_and_delay() {
        let name = |delay| retry_topic(&Topic::new("orders"), "billing", delay).as_str().to_owned();
        assert_eq!(name(Duration::from_millis(200)), "orders.billing.retry.200ms");
        assert_eq!(name(Duration::from_secs(10)), "orders.billing.retry.10s");
        assert_eq!(name(Duration::from_secs(60)), "orders.billing.retry.1m");
        assert_eq!(name(Duration::from_secs(600)), "orders.billing.retry.10m");
        assert_eq!(name(Duration::from_secs(90)), "orders.billing.retry.90s");
        assert_eq!(name(Duration::from_secs(7_200)), "orders.billing.retry.2h");
        assert_eq!(name(Duration::from_millis(1_500)), "orders.billing.retry.1500ms");
        assert_eq!(name(Duration::ZERO), "orders.billing.retry.0ms");
    }

    #[test]
    fn the_dead_letter_topic_is_named_after_the_group() {
        assert_eq!(dead_letter_topic(&Topic::new("orders"), "billing").as_str(), "orders.billing.dlq");
    }

    #[test]
    fn a_name_that_a_broker_would_refuse_is_refused() {
        assert!(check_topic(&Topic::new("orders.v1_a-b")).is_ok());
        for name in ["", "..", "^orders", "with space", "nul\0", &"x".repeat(250)] {
            assert!(check_topic(&Topic::new(name)).is_err(), "{name}");
        }
    }
}
