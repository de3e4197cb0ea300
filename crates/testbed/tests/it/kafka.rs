//! A broker of our own comes back on its ports and leaves nothing behind; what it serves is tested by its users.

use testbed::{KafkaOptions, LocalKafka};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_broker_comes_back_after_every_kind_of_stop() {
    let mut kafka = LocalKafka::start(KafkaOptions::default()).await.unwrap();
    let brokers = kafka.brokers();
    TcpStream::connect(&brokers).await.unwrap();

    kafka.stop_immediately().await.unwrap();
    assert!(TcpStream::connect(&brokers).await.is_err());
    kafka.restart().await.unwrap();
    assert_eq!(kafka.brokers(), brokers);
    TcpStream::connect(&brokers).await.unwrap();

    kafka.stop().await.unwrap();
    assert!(TcpStream::connect(&brokers).await.is_err());

    let folder = kafka.folder().to_owned();
    drop(kafka);
    assert!(!folder.exists());
}
