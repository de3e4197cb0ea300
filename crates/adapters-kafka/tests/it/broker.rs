//! What the tests do to the broker past the adapter: topics, records, committed offsets.

use std::env;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adapters_kafka::KafkaSettings;
use core_delivery::record::Topic;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn brokers() -> String {
    env::var("TEST_KAFKA_BROKERS").expect("TEST_KAFKA_BROKERS is not set: run cargo xtask test-integration")
}

pub(crate) fn settings() -> KafkaSettings {
    let mut settings = KafkaSettings::new(brokers());
    settings.session_timeout = Duration::from_secs(6);
    settings.drain_limit = Duration::from_secs(5);
    settings.commit_interval = Duration::from_millis(50);
    settings
}

/// A name that no other test and no other run has.
pub(crate) fn unique(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    format!("{name}-{now}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers());
    config
}

/// Creates a topic with a name of its own.
pub(crate) async fn topic(name: &str, partitions: i32) -> Topic {
    topic_with(name, partitions, &[]).await
}

pub(crate) async fn topic_with(name: &str, partitions: i32, config: &[(&str, &str)]) -> Topic {
    let name = unique(name);
    create_with(&name, partitions, config).await;
    Topic::new(name)
}

/// Creates a topic with this name.
pub(crate) async fn create(topic: &Topic, partitions: i32) {
    create_with(topic.as_str(), partitions, &[]).await;
}

async fn create_with(name: &str, partitions: i32, config: &[(&str, &str)]) {
    // Where the run's broker is embedded only its own process can create topics, and they have no settings.
    if let Ok(address) = env::var("TEST_EMBEDDED_TOPICS") {
        assert!(config.is_empty(), "a topic of the embedded broker has no settings, {name} needs {config:?}");
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        stream.write_all(format!("topic {name} {partitions}\n").as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert_eq!(answer, "created\n", "{name}");
        return;
    }
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let new = config.iter().fold(new, |new, (key, value)| new.set(key, value));
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    let outcome = admin().create_topics(&[new], &options).await.expect("broker answers");
    outcome.into_iter().for_each(|topic| drop(topic.expect("created")));
}

fn admin() -> AdminClient<DefaultClientContext> {
    client().create().expect("admin client")
}

/// Deletes a topic and waits until it is gone.
pub(crate) async fn delete(topic: &Topic) {
    let outcome = admin().delete_topics(&[topic.as_str()], &AdminOptions::new().operation_timeout(Some(LIMIT))).await;
    outcome.expect("broker answers").into_iter().for_each(|topic| drop(topic.expect("deleted")));
    let topic = topic.clone();
    let gone = tokio::task::spawn_blocking(move || {
        let deadline = std::time::Instant::now() + LIMIT;
        let consumer: BaseConsumer = client().set("allow.auto.create.topics", "false").create().expect("consumer");
        while consumer.fetch_metadata(Some(topic.as_str()), LIMIT).expect("answered").topics()[0].error().is_none() {
            assert!(std::time::Instant::now() < deadline, "still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    gone.await.expect("no panic");
}

/// Makes this the first offset of a partition.
pub(crate) async fn delete_records(topic: &Topic, partition: i32, first: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic.as_str(), partition, Offset::Offset(first)).expect("an offset");
    admin().delete_records(&list, &AdminOptions::new()).await.expect("deleted");
}

/// Transactions on partition 0 of a topic. Needs a runtime of several threads.
pub(crate) struct Transactions {
    producer: FutureProducer,
    topic: Topic,
}

impl Transactions {
    pub(crate) fn new(topic: &Topic) -> Self {
        let producer: FutureProducer = client().set("transactional.id", unique("producer")).create().expect("producer");
        tokio::task::block_in_place(|| producer.init_transactions(LIMIT)).expect("ready");
        Self { producer, topic: topic.clone() }
    }

    /// Writes records and leaves their transaction open.
    pub(crate) async fn begin(&self, count: usize) {
        self.producer.begin_transaction().expect("begun");
        for number in numbers(0..count) {
            let record = FutureRecord::<str, str>::to(self.topic.as_str()).partition(0).payload(&number);
            self.producer.send(record, LIMIT).await.map_err(|(error, _)| error).expect("acknowledged");
        }
    }

    pub(crate) async fn end(&self, is_committed: bool) {
        let end = tokio::task::block_in_place(|| match is_committed {
            true => self.producer.commit_transaction(LIMIT),
            false => self.producer.abort_transaction(LIMIT),
        });
        end.expect("ended");
    }

    pub(crate) async fn write(&self, count: usize, is_committed: bool) {
        self.begin(count).await;
        self.end(is_committed).await;
    }
}

/// Writes records with these payloads to one partition, in order.
pub(crate) async fn produce(topic: &Topic, partition: i32, payloads: impl IntoIterator<Item = String>) {
    let producer: FutureProducer = client().set("linger.ms", "5").create().expect("producer");
    let mut pending = Vec::new();
    for payload in payloads {
        let record = FutureRecord::<str, str>::to(topic.as_str()).partition(partition).key("key").payload(&payload);
        pending.push(producer.send_result(record).map_err(|(error, _)| error).expect("queued"));
    }
    for delivery in pending {
        delivery.await.expect("not dropped").map_err(|(error, _)| error).expect("acknowledged");
    }
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|number| number.to_string())
}

pub(crate) async fn produce_with_headers(topic: &Topic, headers: OwnedHeaders) {
    let producer: FutureProducer = client().create().expect("producer");
    let record = FutureRecord::<str, str>::to(topic.as_str()).partition(0).key("k").payload("p").headers(headers);
    producer.send(record, LIMIT).await.map_err(|(error, _)| error).expect("acknowledged");
}

/// The group's offset of a partition.
pub(crate) async fn committed(group: &str, topic: &Topic, partition: i32) -> Option<i64> {
    let (group, topic) = (group.to_owned(), topic.clone());
    let asked = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = client().set("group.id", group).create().expect("consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition(topic.as_str(), partition);
        let list = consumer.committed_offsets(list, LIMIT).expect("broker answers");
        match list.elements()[0].offset() {
            Offset::Offset(next) => Some(next),
            _ => None,
        }
    });
    asked.await.expect("not cancelled")
}

/// Waits until the group's offset of a partition is this one.
pub(crate) async fn committed_becomes(group: &str, topic: &Topic, partition: i32, wanted: i64) {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let now = committed(group, topic, partition).await;
        if now == Some(wanted) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "the group's offset is {now:?}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
