//! How the processes of a run share their partitions, as the properties of each; what is done to them is the same.

use clap::ValueEnum;

/// One way of sharing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Membership {
    /// The classic protocol, under which only what moves is given up.
    Classic,
    /// The same with a name for each process (`group.instance.id`), which keeps its partitions over a restart.
    Static,
    /// The broker assigns (KIP-848, `group.protocol=consumer`).
    Kip848,
    /// The classic protocol with assignors under which all is given up at each rebalance.
    Eager,
}

impl Membership {
    /// Properties of Kafka's client for the process with this name.
    pub(super) fn properties(self, name: &str) -> Vec<String> {
        // New partitions are found soon; librdkafka would take five minutes.
        let refresh = "topic.metadata.refresh.interval.ms=2000".to_owned();
        let of_its_own = match self {
            Self::Classic => None,
            Self::Static => Some(format!("group.instance.id={name}")),
            Self::Kip848 => Some("group.protocol=consumer".to_owned()),
            Self::Eager => Some("partition.assignment.strategy=range,roundrobin".to_owned()),
        };
        [Some(refresh), of_its_own].into_iter().flatten().collect()
    }

    /// Properties of the broker: where it assigns, it also says when a silent member is gone. The time is that of the
    /// other protocol's members.
    pub(super) fn broker_properties(self) -> Vec<String> {
        match self {
            Self::Kip848 => ["group.consumer.session.timeout.ms=4000", "group.consumer.heartbeat.interval.ms=800"]
                .map(ToOwned::to_owned)
                .to_vec(),
            Self::Classic | Self::Static | Self::Eager => Vec::new(),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Static => "static",
            Self::Kip848 => "kip848",
            Self::Eager => "eager",
        }
    }
}
