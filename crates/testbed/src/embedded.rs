//! The run's Kafka as a broker in a program of its own (`src/bin/embedded`, the feature `embedded`), and how its topics
//! are created: only that process can, so it is asked by a line of text. No Kafka client is built into this file.

use std::{env, net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    backend::BROKERS_VARIABLE,
    holder::{Component, Holder},
};

/// Variable with the address where topics of the run's broker are created, `host:port`; set only if it is the embedded
/// one.
pub(crate) const TOPICS_VARIABLE: &str = "TEST_EMBEDDED_TOPICS";

/// How long one topic may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Starts the program and waits until each component serves or has failed; `note` hears what it says meanwhile.
///
/// # Errors
/// When the program cannot be run, or ends. A component that fails alone is one of the
/// [`failures`](Holder::failures).
pub fn start(program: &Path, note: impl FnMut(&str)) -> Result<Holder> {
    Holder::start(Command::new(program), &[Component::Kafka, Component::Postgres, Component::Topics], note)
}

/// The embedded broker of the run, as a test sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedTopics {
    address: SocketAddr,
}

impl EmbeddedTopics {
    /// Where topics of the cluster with these bootstrap servers are created, if they are the run's and embedded; of any
    /// other cluster the caller is asked to do what Kafka offers.
    ///
    /// # Errors
    /// When the variable holds no address.
    pub fn of(brokers: &str) -> Result<Option<Self>> {
        Self::from_variables(brokers, |name| env::var(name).ok())
    }

    fn from_variables(brokers: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(address) = variable(TOPICS_VARIABLE).filter(|address| !address.is_empty()) else { return Ok(None) };
        if variable(BROKERS_VARIABLE).as_deref() != Some(brokers) {
            return Ok(None);
        }
        let address = address.parse().with_context(|| format!("{TOPICS_VARIABLE}={address}"))?;
        Ok(Some(Self { address }))
    }

    /// Creates a topic; whether it is new.
    ///
    /// # Errors
    /// When the broker refuses its name or number of partitions, or does not answer within 10 s.
    pub async fn create(self, name: &str, partitions: i32) -> Result<bool> {
        let asked = async {
            let mut stream = BufReader::new(TcpStream::connect(self.address).await?);
            stream.write_all(format!("topic {name} {partitions}\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_line(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = timeout(LIMIT, asked).await.context("no answer").flatten();
        match answer.with_context(|| format!("the embedded broker is not asked for the topic {name}"))?.trim_end() {
            "created" => Ok(true),
            "exists" => Ok(false),
            refused => bail!("the embedded broker does not create the topic {name}: {refused}"),
        }
    }
}

/// Answers one line of each connection until the listener fails: `topic NAME PARTITIONS` with `created`, `exists` or
/// `error REASON`. `create` says whether the topic is new.
///
/// # Errors
/// When the listener does.
pub async fn serve_topics(listener: TcpListener, mut create: impl FnMut(&str, u16) -> Result<bool>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let asked = timeout(LIMIT, stream.read_line(&mut line)).await;
        if !matches!(asked, Ok(Ok(_))) {
            continue;
        }
        let answer = match request(&line).and_then(|(name, partitions)| create(name, partitions)) {
            Ok(true) => "created".to_owned(),
            Ok(false) => "exists".to_owned(),
            Err(error) => format!("error {}", format!("{error:#}").replace('\n', " ")),
        };
        // Whoever asked may be gone.
        stream.write_all(format!("{answer}\n").as_bytes()).await.ok();
    }
}

fn request(line: &str) -> Result<(&str, u16)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["topic", name, partitions] = words[..] else { bail!("{line:?} is no request") };
    let partitions = partitions.parse().with_context(|| format!("{partitions} partitions"))?;
    ensure!(partitions > 0, "a topic has partitions");
    Ok((name, partitions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_topic_is_new_once_and_a_refusal_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topics = EmbeddedTopics { address: listener.local_addr().unwrap() };
        let mut known = Vec::new();
        tokio::spawn(serve_topics(listener, move |name, partitions| {
            ensure!(name != "..", "no\nname");
            let topic = (name.to_owned(), partitions);
            let is_new = !known.contains(&topic);
            known.push(topic);
            Ok(is_new)
        }));
        // Someone who connects and says nothing more holds up nobody.
        drop(TcpStream::connect(topics.address).await.unwrap());
        assert!(topics.create("orders", 3).await.unwrap());
        assert!(!topics.create("orders", 3).await.unwrap());
        let refused = async |name, partitions| topics.create(name, partitions).await.unwrap_err().to_string();
        assert!(refused("..", 1).await.ends_with("does not create the topic ..: error no name"));
        assert!(refused("orders", 0).await.ends_with("error a topic has partitions"));
        assert!(refused("orders", -1).await.contains("-1 partitions"));
        assert!(refused("two words", 1).await.contains("is no request"));
    }

    #[test]
    fn only_the_runs_own_broker_is_the_embedded_one() {
        let variables = |name: &str| match name {
            BROKERS_VARIABLE => Some("127.0.0.1:9092".to_owned()),
            TOPICS_VARIABLE => Some("127.0.0.1:7".to_owned()),
            _ => None,
        };
        let address = "127.0.0.1:7".parse().unwrap();
        let of = |brokers| EmbeddedTopics::from_variables(brokers, variables).unwrap();
        assert_eq!(of("127.0.0.1:9092"), Some(EmbeddedTopics { address }));
        assert_eq!(of("127.0.0.1:9093"), None, "a test's own broker");
        let real = |name: &str| variables(name).filter(|_| name == BROKERS_VARIABLE);
        assert_eq!(EmbeddedTopics::from_variables("127.0.0.1:9092", real).unwrap(), None);
    }
}
