//! The tests that a guard is tried with; how they are run is the trial's.

use std::fmt;

/// Tests that are compiled and run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suite {
    /// The kernel: its rules, its scenarios on the memory store, its model.
    Kernel,
    /// The store, on a real PostgreSQL.
    Store,
    /// The consumer and the producer, on a real Kafka.
    Broker,
    /// The client of the payment provider, on sockets.
    Payment,
    /// The rules of the service, without components.
    Rules,
    /// The service itself, on all of it.
    Service,
}

impl Suite {
    /// What `cargo test` is given.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            // Without the tests of what must not compile: no guard is in what they look at, and they take long.
            Self::Kernel => &["--package=core-delivery", "--features=testing", "--lib", "--test=it", "--test=model"],
            Self::Store => &["--package=infra-postgres", "--features=integration", "--lib", "--test=it"],
            Self::Broker => &["--package=adapters-kafka", "--features=integration", "--lib", "--test=it"],
            Self::Payment => &["--package=adapters-http", "--features=payment,ops", "--lib", "--test=it"],
            Self::Rules => &["--package=app-billing", "--features=integration", "--lib"],
            Self::Service => &["--package=app-billing", "--features=integration", "--lib", "--test=it"],
        }
    }

    /// What the tests are given.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Kernel => &["--skip", "a_handler_without_the_claim_does_not_compile"],
            _ => &[],
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kernel => "the kernel",
            Self::Store => "the store",
            Self::Broker => "the broker's client",
            Self::Payment => "the provider's client",
            Self::Rules => "the service's rules",
            Self::Service => "the service",
        })
    }
}
