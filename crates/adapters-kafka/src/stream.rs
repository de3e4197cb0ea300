//! The record stream of one consumer group's member. It starts the poll thread and hands out what that sends; the
//! work is done elsewhere.

use std::io;
use std::sync::Arc;
use std::thread;

use async_trait::async_trait;
use core_delivery::ports::{BoxError, RecordStream, StreamControl, StreamEvent};
use core_delivery::record::Topic;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::context::{Callbacks, ClientHealth};
use crate::control::Shared;
use crate::lanes::LaneLimits;
use crate::names::check_topic;
use crate::poll;
use crate::rebalance::MemberContext;
use crate::settings::{KafkaSettings, SettingsError};

/// A member of a consumer group.
///
/// A thread of its own polls for as long as the stream lives, whatever the kernel does, so that the member stays in
/// its group. Dropping the stream is a stop without a drain: what is settled is committed, and the group is left in
/// the background.
///
/// A lane is announced (`Assigned`) when all of its `Arrival` is known; until then the stream goes on asking, and
/// [`health`](Self::health) tells what is missing. A lane that is given away before that is never heard of: neither
/// `Revoked` nor `Lost` is sent for it. One that was announced and not started is revoked as any other.
///
/// A partition that jumps back to an earlier offset (the broker lost its end, or the topic was made again) is given
/// up and assigned anew, as after `StreamControl::restart`: `Lost`, then `Assigned` with another epoch.
#[derive(Debug)]
pub struct KafkaStream {
    events: UnboundedReceiver<StreamEvent>,
    health: Arc<ClientHealth>,
}

impl KafkaStream {
    /// Joins the group and subscribes to the topics. Returns before anything is assigned, and even if no broker can be
    /// reached: the client goes on trying, and [`health`](Self::health) tells.
    ///
    /// After [`StreamControl::stop`], and after a [`StreamEvent::Failed`], all lanes are drained and committed, the
    /// group is left, and the stream ends: within the drain limit and a few seconds, or with the brokers away within three
    /// times the drain limit and a minute.
    ///
    /// # Errors
    /// When the settings are refused, the client cannot be made of them (a file that is missing, say), or there is no
    /// thread for it.
    pub fn start(
        settings: &KafkaSettings,
        group: &str,
        topics: &[Topic],
    ) -> Result<(Self, Arc<dyn StreamControl>), KafkaError> {
        settings.validate()?;
        if group.is_empty() || group.contains('\0') {
            return Err(SettingsError::Invalid { setting: "group", reason: "must be a name" }.into());
        }
        if topics.is_empty() {
            return Err(SettingsError::Invalid { setting: "topics", reason: "name none" }.into());
        }
        topics.iter().try_for_each(check_topic)?;

        let limits = LaneLimits { records: settings.lane_records_max, bytes: settings.lane_bytes_max };
        let (sender, events) = unbounded_channel();
        let shared = Arc::new(Shared::new(limits, sender));
        let callbacks = Callbacks::default();
        let health = Arc::clone(&callbacks.health);
        let context = MemberContext { callbacks, shared: Arc::clone(&shared), drain_limit: settings.drain_limit };
        let consumer: BaseConsumer<MemberContext> = settings
            .consumer(group)
            .create_with_context(context)
            .map_err(|error| KafkaError::client("create a consumer", error))?;
        let names: Vec<&str> = topics.iter().map(Topic::as_str).collect();
        consumer.subscribe(&names).map_err(|error| KafkaError::client("subscribe", error))?;

        let thread = thread::Builder::new().name("kafka-poll".into());
        let (polled, topics, group) = (Arc::clone(&shared), topics.to_vec(), group.to_owned());
        let settings = settings.clone();
        thread
            .spawn(move || poll::run(consumer, &polled, topics, settings, group))
            .map_err(|source| KafkaError::Thread { source })?;
        Ok((Self { events, health }, shared))
    }

    /// How the member is connected, for readiness. Lives on when the stream has been given away.
    pub fn health(&self) -> Arc<ClientHealth> {
        Arc::clone(&self.health)
    }
}

#[async_trait]
impl RecordStream for KafkaStream {
    async fn next(&mut self) -> Option<StreamEvent> {
        self.events.recv().await
    }
}

/// Why a Kafka client cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// The settings are refused.
    #[error("the Kafka settings are refused")]
    Settings(#[from] SettingsError),
    /// The client refuses what it was given, mostly a property or a file that a property names.
    #[error("the Kafka client cannot {action}")]
    Client {
        /// What was tried.
        action: &'static str,
        /// The client's error.
        #[source]
        source: BoxError,
    },
    /// The system gives no thread.
    #[error("no thread to poll Kafka with")]
    Thread {
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl KafkaError {
    pub(crate) fn client(action: &'static str, source: rdkafka::error::KafkaError) -> Self {
        Self::Client { action, source: source.into() }
    }
}
