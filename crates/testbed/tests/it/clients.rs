//! The clients on a real broker: what they write is what they read. The service is tested by its own crate.

use testbed::{Backend, clients::KafkaClient, unique_name};

fn client() -> KafkaClient {
    KafkaClient::new(Backend::from_env().unwrap().kafka_brokers).unwrap()
}

#[tokio::test]
async fn what_is_written_is_read_in_order() {
    let (kafka, topic) = (client(), unique_name("written"));
    kafka.create_topic(&topic, 3, &[("cleanup.policy", "delete")]).await.unwrap();
    assert!(kafka.create_topic(&topic, 3, &[]).await.is_err(), "it exists");
    assert_eq!(kafka.read_all(&topic).await.unwrap(), []);

    let headers: [(&str, &[u8]); 2] = [("a", b"1"), ("a", b"2")];
    assert_eq!(kafka.produce_to(&topic, 2, None, Some(b"one"), &headers).await.unwrap(), 0);
    assert_eq!(kafka.produce_to(&topic, 2, Some(b"key"), None, &[]).await.unwrap(), 1);
    let (partition, offset) = kafka.produce(&topic, "order", b"two").await.unwrap();
    assert_eq!(kafka.produce(&topic, "order", b"three").await.unwrap(), (partition, offset + 1));

    let records = kafka.read_all(&topic).await.unwrap();
    assert_eq!(records.len(), 4);
    let first = records.iter().find(|record| record.partition == 2 && record.offset == 0).unwrap();
    assert_eq!((first.key.as_deref(), first.payload.as_deref()), (None, Some(b"one".as_slice())));
    assert_eq!(first.headers.len(), 2);
    assert_eq!(first.header("a"), Some("2"), "the last one counts");
    let tombstone = records.iter().find(|record| record.partition == 2 && record.offset == 1).unwrap();
    assert_eq!((tombstone.key.as_deref(), tombstone.payload.as_deref()), (Some(b"key".as_slice()), None));

    kafka.delete_topic(&topic).await.unwrap();
}

#[tokio::test]
async fn a_bulk_is_whole() {
    let (kafka, topic) = (client(), unique_name("bulk"));
    kafka.create_topic(&topic, 4, &[]).await.unwrap();
    let records = (0..60_000).map(|number| (format!("k{number}"), number.to_string().into_bytes()));
    assert_eq!(kafka.produce_all(&topic, records).await.unwrap(), 60_000);
    assert_eq!(kafka.end_offsets(&topic).await.unwrap().iter().sum::<i64>(), 60_000);
    let mut payloads: Vec<_> =
        kafka.read_all(&topic).await.unwrap().into_iter().filter_map(|record| record.payload).collect();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), 60_000);
}

#[tokio::test]
async fn a_group_without_members_can_be_reset() {
    let (kafka, topic, group) = (client(), unique_name("reset"), unique_name("group"));
    kafka.create_topic(&topic, 2, &[]).await.unwrap();
    kafka.produce_to(&topic, 0, None, Some(b"x"), &[]).await.unwrap();
    kafka.produce_to(&topic, 1, None, Some(b"x"), &[]).await.unwrap();
    assert_eq!(kafka.committed(&group, &topic, 2).await.unwrap(), [None, None]);
    assert_eq!(kafka.lag(&group, &topic).await.unwrap(), 2);
    kafka.reset_to_earliest(&group, &topic).await.unwrap();
    assert_eq!(kafka.committed(&group, &topic, 2).await.unwrap(), [Some(0), Some(0)]);
    assert_eq!(kafka.lag(&group, &topic).await.unwrap(), 2);
}
