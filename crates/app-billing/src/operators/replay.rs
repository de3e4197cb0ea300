//! Sends copies and waits for each acknowledgement: side by side, and in order where they have a key in common. Which
//! letters are sent is decided elsewhere.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use core_delivery::crash::{CrashPoint, reached};
use core_delivery::headers::without_foreign_headers;
use core_delivery::ports::{PublishError, Publisher, error_chain};
use core_delivery::record::OutgoingRecord;
use tokio::task::JoinSet;

use super::table::Progress;

/// How many keys are sent for at once.
const IN_FLIGHT: usize = 64;

/// What became of the copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Acknowledged.
    pub acknowledged: usize,
    /// Neither acknowledged nor certainly not written, or not tried because of an earlier failure.
    pub open: usize,
    /// Why, if any is open.
    pub reason: Option<String>,
}

/// Sends the copies. After a failure nothing new is begun.
pub async fn send(publisher: Arc<dyn Publisher>, copies: Vec<OutgoingRecord>) -> Sent {
    let total = copies.len();
    let mut chains = chains(copies);
    let mut running = JoinSet::new();
    let mut progress = Progress::of(format!("of {total} letters replayed"));
    let mut sent = Sent::default();
    loop {
        while running.len() < IN_FLIGHT && sent.reason.is_none() {
            let Some(chain) = chains.pop_front() else { break };
            running.spawn(send_chain(Arc::clone(&publisher), chain));
        }
        let Some(ended) = running.join_next().await else { break };
        let (acknowledged, failure) = ended.unwrap_or_else(|error| (0, Some(error.to_string())));
        sent.acknowledged += acknowledged;
        progress.reach(sent.acknowledged as u64);
        sent.reason = sent.reason.or(failure);
    }
    sent.open = total - sent.acknowledged;
    sent
}

/// The copies of each key, in order.
fn chains(copies: Vec<OutgoingRecord>) -> VecDeque<Vec<OutgoingRecord>> {
    let mut chains: VecDeque<Vec<OutgoingRecord>> = VecDeque::new();
    let mut of_key: HashMap<Bytes, usize> = HashMap::new();
    for copy in copies {
        let place = copy.key.clone().map(|key| *of_key.entry(key).or_insert(chains.len()));
        match place.and_then(|place| chains.get_mut(place)) {
            Some(chain) => chain.push(copy),
            None => chains.push_back(vec![copy]),
        }
    }
    chains
}

async fn send_chain(publisher: Arc<dyn Publisher>, chain: Vec<OutgoingRecord>) -> (usize, Option<String>) {
    let mut acknowledged = 0;
    for copy in chain {
        let mut outcome = publisher.publish(&copy).await;
        if matches!(outcome, Err(PublishError::TooLarge { .. })) {
            outcome = publisher.publish(&without_foreign_headers(copy)).await;
        }
        match outcome {
            Ok(()) => {
                acknowledged += 1;
                reached(CrashPoint::ReplaySent);
            }
            Err(error) => return (acknowledged, Some(error_chain(&error))),
        }
    }
    (acknowledged, None)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use core_delivery::record::Topic;

    use super::*;

    /// Acknowledges everything but one payload.
    #[derive(Default)]
    struct Broker {
        refuses: Option<&'static str>,
        log: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl Publisher for Broker {
        async fn publish(&self, record: &OutgoingRecord) -> Result<(), PublishError> {
            tokio::task::yield_now().await;
            let payload = String::from_utf8_lossy(record.payload.as_deref().unwrap_or_default()).into_owned();
            if self.refuses == Some(payload.as_str()) {
                return Err(PublishError::Unavailable { topic: "tier".into(), source: "away".into() });
            }
            self.log.lock().expect("no panic").push(payload);
            Ok(())
        }
    }

    fn copy(key: Option<&str>, payload: &str) -> OutgoingRecord {
        OutgoingRecord {
            topic: Topic::new("tier"),
            partition: 0,
            key: key.map(|key| key.to_owned().into()),
            payload: Some(payload.to_owned().into()),
            headers: vec![],
        }
    }

    #[tokio::test]
    async fn copies_of_a_key_are_sent_in_their_order() {
        let broker = Arc::new(Broker::default());
        let copies = (0..200).map(|number| copy(Some(["a", "b"][number % 2]), &number.to_string())).collect();
        let sent = send(Arc::clone(&broker) as Arc<dyn Publisher>, copies).await;
        assert_eq!(sent, Sent { acknowledged: 200, open: 0, reason: None });
        let log: Vec<usize> = broker.log.lock().expect("no panic").iter().map(|n| n.parse().expect("n")).collect();
        for rest in [0, 1] {
            assert!(log.iter().filter(|number| *number % 2 == rest).is_sorted());
        }
    }

    #[tokio::test]
    async fn after_a_failure_nothing_new_is_begun_and_what_is_open_is_told() {
        let broker = Arc::new(Broker { refuses: Some("1"), ..Broker::default() });
        let of_a_key = (0..3).map(|number| copy(Some("a"), &number.to_string()));
        let copies = of_a_key.chain((0..1_000).map(|_| copy(None, "x"))).collect();
        let sent = send(broker as Arc<dyn Publisher>, copies).await;
        assert_eq!(sent.reason.as_deref(), Some("cannot write to tier: away"));
        assert!(sent.open >= 2 && sent.acknowledged + sent.open == 1_003, "{sent:?}");
        assert!(sent.acknowledged < 1_000, "{sent:?}");
    }
}
