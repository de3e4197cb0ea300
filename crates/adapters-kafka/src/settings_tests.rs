//! What is refused, and what a setting becomes; no broker is needed for it.

use super::*;

#[test]
fn the_defaults_are_valid() {
    assert_eq!(KafkaSettings::new("localhost:9092").validate(), Ok(()));
}

#[test]
fn a_property_that_carries_a_guarantee_is_refused_with_the_reason() {
    let plain = ["enable.auto.commit", "auto.offset.reset", "group.id", "acks", "session.timeout.ms"];
    let with_a_prefix = ["topic.auto.offset.reset", "topic.acks", "topic.request.required.acks"];
    for key in plain.into_iter().chain(with_a_prefix) {
        let mut settings = KafkaSettings::new("localhost:9092");
        settings.properties.push((key.into(), "whatever".into()));
        let error = settings.validate().expect_err("refused").to_string();
        assert!(error.contains(key) && error.contains("cannot be set: "), "{error}");
    }
}

#[test]
fn a_drain_limit_must_be_below_the_session_timeout() {
    let mut settings = KafkaSettings::new("localhost:9092");
    settings.drain_limit = settings.session_timeout;
    let error = settings.validate().expect_err("refused").to_string();
    assert_eq!(error, "the drain limit (15s) must be below the session timeout (15s)");
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    let mut settings = KafkaSettings::new(" ");
    assert!(settings.validate().expect_err("refused").to_string().contains("`brokers` is empty"));
    settings.brokers = "localhost:9092".into();
    settings.lane_records_max = 0;
    assert!(settings.validate().expect_err("refused").to_string().contains("`lane_records_max`"));
}

#[test]
fn properties_tune_but_the_guarantees_stay() {
    let mut settings = KafkaSettings::new("localhost:9092");
    settings.properties = vec![("fetch.wait.max.ms".into(), "7".into()), ("acks".into(), "1".into())];
    let consumer = settings.consumer("billing");
    assert_eq!(consumer.get("fetch.wait.max.ms"), Some("7"));
    assert_eq!(consumer.get("enable.auto.commit"), Some("false"));
    assert_eq!(consumer.get("auto.offset.reset"), Some("earliest"));
    assert_eq!(consumer.get("isolation.level"), Some("read_committed"));
    assert_eq!(settings.producer().get("acks"), Some("all"));
}

#[test]
fn what_members_share_lanes_by_reaches_members_only() {
    let mut settings = KafkaSettings::new("localhost:9092");
    assert_eq!(settings.consumer("billing").get("partition.assignment.strategy"), Some("cooperative-sticky"));
    settings.properties = vec![("partition.assignment.strategy".into(), "range".into())];
    assert_eq!(settings.consumer("billing").get("partition.assignment.strategy"), Some("range"));
    let given = [("group.protocol", "consumer"), ("group.instance.id", "billing-1")];
    settings.properties = given.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    assert_eq!(settings.validate(), Ok(()));
    let member = settings.consumer("billing");
    for refused_by_the_client in ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"] {
        assert_eq!(member.get(refused_by_the_client), None);
    }
    for (key, value) in given {
        assert_eq!(member.get(key), Some(value));
        for other in [settings.observer("billing"), settings.reader(), settings.producer(), settings.admin()] {
            assert_eq!(other.get(key), None, "{key}");
        }
    }
}

#[test]
fn debug_shows_no_value_of_a_property() {
    let mut settings = KafkaSettings::new("localhost:9092");
    settings.properties.push(("sasl.password".into(), "open sesame".into()));
    let text = format!("{settings:?}");
    assert!(text.contains("sasl.password") && !text.contains("sesame"), "{text}");
}
