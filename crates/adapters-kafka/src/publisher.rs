//! Writes copies and waits for their acknowledgement. It never decides what is copied, and takes no failure for a
//! success.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use core_delivery::crash::{self, CrashPoint};
use core_delivery::ports::{BoxError, PublishError, Publisher};
use core_delivery::record::{Header, OutgoingRecord};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::message::{Header as ClientHeader, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::util::Timeout;
use tracing::{error, warn};

use crate::context::{Callbacks, ClientHealth};
use crate::names::check_topic;
use crate::partitions::PartitionCounts;
use crate::settings::KafkaSettings;
use crate::stream::KafkaError;

pub(crate) type Client = FutureProducer<Callbacks>;

/// An idempotent producer that waits for all in-sync replicas.
///
/// Needs a Tokio runtime. `publish` is cancel safe in the sense of the port: a record that was queued may still be
/// written. One record takes at most the delivery timeout, after the time to find the topic's partitions (5 s).
pub struct KafkaPublisher {
    settings: KafkaSettings,
    callbacks: Callbacks,
    client: RwLock<Arc<Client>>,
    partitions: PartitionCounts,
}

impl KafkaPublisher {
    /// Makes the client. It connects in the background.
    ///
    /// # Errors
    /// When the settings are refused or the client cannot be made of them.
    pub fn new(settings: &KafkaSettings) -> Result<Self, KafkaError> {
        settings.validate()?;
        let callbacks = Callbacks::default();
        let client = connect(settings, &callbacks).map_err(|error| KafkaError::client("create a producer", error))?;
        Ok(Self {
            settings: settings.clone(),
            callbacks,
            client: RwLock::new(Arc::new(client)),
            partitions: PartitionCounts::default(),
        })
    }

    /// How the producer is connected, for readiness.
    pub fn health(&self) -> Arc<ClientHealth> {
        Arc::clone(&self.callbacks.health)
    }

    fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// After a fatal error the idempotent producer refuses everything for ever. A new one may write a record again
    /// whose outcome the old one did not know: a second copy, which the claim absorbs.
    fn replace_if_broken(&self, broken: &Arc<Client>) {
        let Some((code, text)) = broken.client().fatal_error() else { return };
        let mut current = self.client.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, broken) {
            return;
        }
        warn!(error = text, code = ?code, "the producer is broken for good and replaced");
        match connect(&self.settings, &self.callbacks) {
            Ok(client) => *current = Arc::new(client),
            Err(error) => error!(%error, "the broken producer could not be replaced"),
        }
    }

    fn refused(&self, topic: &str, error: &ClientError) -> PublishError {
        let topic = topic.to_owned();
        if is_too_large(error) {
            return PublishError::TooLarge { topic };
        }
        PublishError::Unavailable { topic, source: self.explained(error) }
    }

    /// The error with the reason, which only the error callback was told.
    fn explained(&self, error: &ClientError) -> BoxError {
        match self.callbacks.health.last_error() {
            Some(reason) => format!("{error}; the client last reported: {reason}").into(),
            None => error.to_string().into(),
        }
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, record: &OutgoingRecord) -> Result<(), PublishError> {
        let topic = record.topic.as_str();
        let unavailable = |source| PublishError::Unavailable { topic: topic.to_owned(), source };
        check_topic(&record.topic).map_err(|error| unavailable(error.into()))?;
        let client = self.client();
        let looked_up = self.partitions.has(&client, &record.topic, record.partition).await;
        let has_partition = match looked_up {
            Ok(has_partition) => has_partition,
            Err(error) => {
                self.callbacks.health.wait_for_words().await;
                return Err(unavailable(self.explained(&error)));
            }
        };

        let mut outgoing = FutureRecord::<[u8], [u8]>::to(topic).headers(headers(&record.headers));
        outgoing.partition = has_partition.then_some(record.partition);
        outgoing.key = record.key.as_deref();
        outgoing.payload = record.payload.as_deref();
        // A full queue is waited for: it empties, by acknowledgements or by the delivery timeout.
        let sent = crash::sent(CrashPoint::CopySent, client.send(outgoing, Timeout::Never));
        match crash::held(CrashPoint::CopyHeld, sent).await {
            Ok(_) => {
                self.callbacks.health.succeeded();
                Ok(())
            }
            Err((error, _)) => {
                self.partitions.forget(&record.topic);
                self.replace_if_broken(&client);
                if !is_too_large(&error) {
                    self.callbacks.health.wait_for_words().await;
                }
                Err(self.refused(topic, &error))
            }
        }
    }
}

fn connect(settings: &KafkaSettings, callbacks: &Callbacks) -> Result<Client, ClientError> {
    settings.producer().create_with_context(callbacks.clone())
}

/// The second one is about a batch that does not fit a segment: batches of more than one record are smaller than any.
fn is_too_large(error: &ClientError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(code, Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge))
}

fn headers(headers: &[Header]) -> OwnedHeaders {
    let start = OwnedHeaders::new_with_capacity(headers.len());
    headers.iter().fold(start, |list, header| {
        list.insert(ClientHeader { key: &header.key, value: header.value.as_ref().map(Bytes::as_ref) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher() -> KafkaPublisher {
        KafkaPublisher::new(&KafkaSettings::new("localhost:1")).expect("valid")
    }

    #[test]
    fn only_the_size_is_told_apart() {
        let publisher = publisher();
        let refused = |code| publisher.refused("dlq", &ClientError::MessageProduction(code));
        let too_large = refused(RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(matches!(too_large, PublishError::TooLarge { topic } if topic == "dlq"));
        for code in [RDKafkaErrorCode::MessageTimedOut, RDKafkaErrorCode::TopicAuthorizationFailed] {
            assert!(matches!(refused(code), PublishError::Unavailable { .. }));
        }
    }

    #[test]
    fn a_failure_says_what_the_client_was_told() {
        let publisher = publisher();
        publisher.callbacks.health.failed(RDKafkaErrorCode::Authentication, "invalid credentials");
        let timed_out = ClientError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        assert!(publisher.explained(&timed_out).to_string().contains("invalid credentials"));
    }
}
