//! Topics found, created, missing.

use std::time::Duration;

use adapters_kafka::{KafkaSettings, TopicPlan, TopicsError, ensure_topics};
use core_delivery::record::Topic;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::broker::{LIMIT, brokers, client, settings, topic_with, unique};

fn plan(source: &Topic) -> TopicPlan {
    TopicPlan::new(source, "billing", &[Duration::from_millis(200), Duration::from_secs(60)])
}

async fn partitions(topic: &Topic) -> usize {
    let topic = topic.clone();
    let count = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = client().create().expect("consumer");
        let metadata = consumer.fetch_metadata(Some(topic.as_str()), LIMIT).expect("answered");
        metadata.topics()[0].partitions().len()
    });
    count.await.expect("no panic")
}

#[tokio::test]
async fn copies_get_the_partitions_of_the_source_and_room_for_headers() {
    let source = topic_with("source", 5, &[("max.message.bytes", "200000"), ("cleanup.policy", "compact")]).await;
    let plan = plan(&source);
    // Two at once, as when two processes start.
    let settings = settings();
    let (one, other) = tokio::join!(ensure_topics(&settings, &plan, true), ensure_topics(&settings, &plan, true));
    let report = one.expect("fine");
    let other = other.expect("fine");
    assert_eq!((report.partitions, report.copy_bytes_max()), (5, Some(200_000 + 65_536)));
    let names = report.topics.iter().map(|topic| &topic.topic);
    assert!(names.eq([&source].into_iter().chain(plan.copies())));
    assert_eq!(report.created.len() + other.created.len(), 3, "each is created once");

    let admin: AdminClient<DefaultClientContext> = client().create().expect("admin client");
    for copy in plan.copies() {
        assert_eq!(partitions(copy).await, 5, "{copy}");
        let asked = [ResourceSpecifier::Topic(copy.as_str())];
        let mut answers = admin.describe_configs(&asked, &AdminOptions::new()).await.expect("answered");
        let config = answers.remove(0).expect("described");
        let value = |name: &str| config.get(name).and_then(|entry| entry.value.clone());
        assert_eq!(value("max.message.bytes").as_deref(), Some("265536"));
        assert_eq!(value("cleanup.policy").as_deref(), Some("delete"));
    }
    let again = ensure_topics(&settings, &plan, false).await.expect("fine");
    assert_eq!(again.created, []);
}

#[tokio::test]
async fn missing_copies_are_listed_with_the_command_for_each() {
    let source = topic_with("source", 3, &[]).await;
    let plan = plan(&source);
    let error = ensure_topics(&settings(), &plan, false).await.expect_err("missing");
    let TopicsError::Missing(missing) = &error else { panic!("{error:?}") };
    assert!(missing.iter().map(|missing| &missing.topic).eq(plan.copies()));
    let text = error.to_string();
    for copy in plan.copies() {
        let command = format!(
            "kafka-topics.sh --bootstrap-server {} --create --topic {copy} --partitions 3 --config \
             cleanup.policy=delete --config max.message.bytes=1114124",
            brokers()
        );
        assert!(text.contains(&command), "{text}");
    }
}

#[tokio::test]
async fn a_missing_source_is_told_by_name_and_never_created() {
    let source = Topic::new(unique("nowhere"));
    for _ in 0..2 {
        let error = ensure_topics(&settings(), &plan(&source), true).await.expect_err("missing");
        assert!(matches!(&error, TopicsError::SourceMissing { topic, .. } if *topic == source), "{error:?}");
        assert!(error.to_string().contains(source.as_str()));
    }
}

#[tokio::test]
async fn an_unreachable_broker_is_told_apart_with_the_reason() {
    assert!(brokers().contains(':'));
    let settings = KafkaSettings::new("127.0.0.1:1");
    let error = ensure_topics(&settings, &plan(&Topic::new("orders")), true).await.expect_err("unreachable");
    let TopicsError::Unreachable { brokers, reason } = &error else { panic!("{error:?}") };
    assert_eq!(brokers, "127.0.0.1:1");
    assert!(reason.to_lowercase().contains("refused"), "{reason}");
}

#[tokio::test]
async fn a_topic_that_would_lose_copies_is_refused_with_what_to_change() {
    let source = topic_with("source", 1, &[]).await;
    let mut plan = plan(&source);
    plan.retries = vec![topic_with("compacted", 1, &[("cleanup.policy", "compact,delete")]).await];
    plan.dead_letter = topic_with("short", 1, &[("retention.ms", "1000"), ("max.message.bytes", "2000000")]).await;
    let error = ensure_topics(&settings(), &plan, true).await.expect_err("unfit");
    assert!(matches!(&error, TopicsError::Unfit(faults) if faults.len() == 3), "{error}");
    let text = error.to_string();
    for named in [plan.retries[0].as_str(), "cleanup.policy", "max.message.bytes=1048588", "retention.ms=1000"] {
        assert!(text.contains(named), "{text}");
    }
}
