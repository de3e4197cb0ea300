//! What can be set about Kafka, checked, and turned into librdkafka's configuration. It opens no connection, and no
//! setting may weaken a guarantee.

use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::membership::{self, Protocol};

/// How a service talks to Kafka. `Debug` shows the names of the passed-through properties, never their values.
#[derive(Clone)]
pub struct KafkaSettings {
    /// Bootstrap servers, `host:port`, separated by commas.
    pub brokers: String,
    /// The name of this client in the broker's logs and quotas.
    pub client_id: String,
    /// librdkafka's properties, for security, tuning and the way in which members share the lanes. Keys that carry a
    /// guarantee are refused by [`validate`](Self::validate).
    pub properties: Vec<(String, String)>,
    /// After this long without a heartbeat the broker gives the lanes to another member. Default 15 s. With
    /// `group.protocol=consumer` the broker's own setting counts, which must not be shorter.
    pub session_timeout: Duration,
    /// How long a lane that is given away may take to finish what runs. Below the session timeout; default 10 s.
    pub drain_limit: Duration,
    /// How often moved positions are committed. Default 200 ms.
    pub commit_interval: Duration,
    /// How many records may be delivered and not yet settled in a lane before it is paused. Default 20,000.
    pub lane_records_max: usize,
    /// The same in bytes. Default 32 MiB.
    pub lane_bytes_max: usize,
    /// How long the publisher tries to get one record acknowledged. Default 30 s.
    pub delivery_timeout: Duration,
    /// The largest record that the publisher sends, in bytes: the topic's `max.message.bytes`. Default 1 MiB + 64 KiB.
    pub message_bytes_max: usize,
}

impl KafkaSettings {
    /// The defaults for these bootstrap servers.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            client_id: "delivery".into(),
            properties: Vec::new(),
            session_timeout: Duration::from_secs(15),
            drain_limit: Duration::from_secs(10),
            commit_interval: Duration::from_millis(200),
            lane_records_max: 20_000,
            lane_bytes_max: 32 << 20,
            delivery_timeout: Duration::from_secs(30),
            message_bytes_max: (1 << 20) + (64 << 10),
        }
    }

    /// The properties that [`validate`](Self::validate) refuses, aliases included, each with the reason.
    pub fn refused_properties() -> &'static [(&'static str, &'static str)] {
        REFUSED
    }

    /// Checks each setting and how they fit together.
    ///
    /// # Errors
    /// The first setting that is refused, with the reason.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (key, _) in &self.properties {
            // librdkafka takes a topic's property under this prefix as well, beside ours and in no certain order.
            let plain = key.strip_prefix("topic.").unwrap_or(key);
            if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == plain) {
                return Err(SettingsError::RefusedProperty { key: key.clone(), reason });
            }
        }
        membership::check(&self.properties)?;
        if self.drain_limit >= self.session_timeout {
            let (drain, session) = (self.drain_limit, self.session_timeout);
            return Err(SettingsError::DrainNotBelowSession { drain, session });
        }
        let checks = [
            (!self.brokers.trim().is_empty(), "brokers", "is empty: name at least one `host:port`"),
            (self.session_timeout >= Duration::from_secs(1), "session_timeout", "must be at least 1 s"),
            (self.session_timeout <= Duration::from_secs(3_600), "session_timeout", "must be at most 1 h"),
            (!self.commit_interval.is_zero(), "commit_interval", "must be more than zero"),
            (self.commit_interval <= Duration::from_secs(60), "commit_interval", "must be at most 60 s"),
            (self.lane_records_max >= 1, "lane_records_max", "must be at least 1"),
            (self.lane_bytes_max >= 1, "lane_bytes_max", "must be at least 1"),
            (self.delivery_timeout >= Duration::from_secs(1), "delivery_timeout", "must be at least 1 s"),
            (self.delivery_timeout <= Duration::from_secs(3_600), "delivery_timeout", "must be at most 1 h"),
            (
                (1_000..=1_000_000_000).contains(&self.message_bytes_max),
                "message_bytes_max",
                "must be between 1,000 and 1,000,000,000",
            ),
        ];
        match checks.into_iter().find(|(is_fine, _, _)| !is_fine) {
            Some((_, setting, reason)) => Err(SettingsError::Invalid { setting, reason }),
            None => Ok(()),
        }
    }

    /// For the member of a consumer group.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let heartbeat = (self.session_timeout / 5).min(Duration::from_secs(3));
        // The prefetch of a lane is thrown away when it is paused: no more of it than a lane uses between two pauses.
        let prefetch = (self.lane_records_max / 2).clamp(100, 10_000);
        let protocol = Protocol::of(&self.properties);
        let mut config = self.base();
        if protocol == Protocol::Classic {
            config
                .set("heartbeat.interval.ms", millis(heartbeat))
                .set("partition.assignment.strategy", "cooperative-sticky");
        }
        config
            .set("queued.min.messages", prefetch.to_string())
            .set("queued.max.messages.kbytes", "16384")
            .set("max.partition.fetch.bytes", "524288")
            .set("fetch.wait.max.ms", "50")
            .set("fetch.queue.backoff.ms", "10");
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        if protocol == Protocol::Classic {
            config.set("session.timeout.ms", millis(self.session_timeout));
        }
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "false");
        config
    }

    /// For a consumer that joins no group. The client checks this timeout against the passed-through properties even
    /// so.
    pub(crate) fn onlooker(&self) -> ClientConfig {
        let mut config = self.admin();
        config.set("session.timeout.ms", millis(self.session_timeout));
        config
    }

    /// For questions about topics, offsets and a group, without joining it. The end of a log is its true end, open
    /// transactions or not.
    pub(crate) fn observer(&self, group: &str) -> ClientConfig {
        let mut config = self.onlooker();
        config.set("group.id", group).set("enable.auto.commit", "false").set("isolation.level", "read_uncommitted");
        config
    }

    /// For reading a topic without a group. The client wants a group's name; nothing is kept under it.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut config = self.onlooker();
        config
            .set("group.id", format!("{}-reader", self.client_id))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true");
        config
    }

    /// For the publisher.
    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.base();
        config
            .set("linger.ms", "5")
            // The broker measures the batch against `max.message.bytes`, and a batch that is too large fails all its
            // records: with this size only a single record can be too large.
            .set("batch.size", "60000")
            // Where the Java clients would put a key.
            .set("partitioner", "murmur2_random");
        self.pass_through(&mut config);
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", millis(self.delivery_timeout))
            .set("message.max.bytes", self.message_bytes_max.to_string());
        config
    }

    /// For looking at topics and creating them.
    pub(crate) fn admin(&self) -> ClientConfig {
        let mut config = self.base();
        self.pass_through(&mut config);
        config
    }

    fn base(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", &self.client_id)
            .set("allow.auto.create.topics", "false")
            .set("reconnect.backoff.max.ms", "2000")
            .set("socket.keepalive.enable", "true")
            .set_log_level(RDKafkaLogLevel::Info);
        config
    }

    /// To a client that joins no group.
    fn pass_through(&self, config: &mut ClientConfig) {
        for (key, value) in self.properties.iter().filter(|(key, _)| !membership::is_of_members(key)) {
            config.set(key, value);
        }
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: Vec<&str> = self.properties.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("KafkaSettings")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field("properties", &properties)
            .field("session_timeout", &self.session_timeout)
            .field("drain_limit", &self.drain_limit)
            .field("commit_interval", &self.commit_interval)
            .field("lane_records_max", &self.lane_records_max)
            .field("lane_bytes_max", &self.lane_bytes_max)
            .field("delivery_timeout", &self.delivery_timeout)
            .field("message_bytes_max", &self.message_bytes_max)
            .finish()
    }
}

/// Why the settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A property that carries a guarantee.
    #[error("the Kafka property `{key}` cannot be set: {reason}")]
    RefusedProperty {
        /// Its key.
        key: String,
        /// What depends on it.
        reason: &'static str,
    },
    /// The broker would give a lane to another member while this one still drains it.
    #[error("the drain limit ({drain:?}) must be below the session timeout ({session:?})")]
    DrainNotBelowSession {
        /// The drain limit.
        drain: Duration,
        /// The session timeout.
        session: Duration,
    },
    /// A value out of its bounds.
    #[error("the Kafka setting `{setting}` {reason}")]
    Invalid {
        /// Its name.
        setting: &'static str,
        /// What it must be.
        reason: &'static str,
    },
}

/// Properties, with their aliases, that the guarantees rest on.
const REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", "there is a setting for the brokers"),
    ("metadata.broker.list", "there is a setting for the brokers"),
    ("client.id", "there is a setting for it"),
    ("group.id", "claims and positions are kept under the group's name, so it is set in one place"),
    ("group.protocol.type", "the group's members are consumers"),
    ("session.timeout.ms", "there is a setting for it, which is checked against the drain limit"),
    ("enable.auto.commit", "an offset is committed only after a verdict"),
    ("auto.commit.enable", "an offset is committed only after a verdict"),
    ("enable.auto.offset.store", "an offset is stored only after a verdict"),
    ("offset.store.method", "offsets are kept by the broker"),
    ("auto.offset.reset", "a partition without an offset is read from its start, or its events would be lost"),
    ("isolation.level", "records of aborted transactions are no events"),
    ("enable.partition.eof", "the end of a partition is found by its position"),
    ("acks", "a copy counts only when all in-sync replicas have it"),
    ("request.required.acks", "a copy counts only when all in-sync replicas have it"),
    ("enable.idempotence", "a retried copy must be written once and in order"),
    ("transactional.id", "copies are not written in transactions"),
    ("message.timeout.ms", "there is a setting for the delivery timeout"),
    ("delivery.timeout.ms", "there is a setting for the delivery timeout"),
    ("message.max.bytes", "there is a setting for the largest record"),
    ("allow.auto.create.topics", "topics are created by a plan that is checked, never by being used"),
];

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
