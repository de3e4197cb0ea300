//! Everything that can be done to the service and its world, as names; how it is done is not known here.

use clap::ValueEnum;

/// One kind of faults, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Every kind, one after the other.
    All,
    /// Processes are killed (SIGKILL): one, or all at once, after which every commit is checked.
    Kills,
    /// A process stands still for longer than its session, and goes on.
    Zombies,
    /// Processes join and leave the group in order.
    Rebalances,
    /// The topic gets more partitions.
    Partitions,
    /// The broker stops, in order or as in a crash, and comes back.
    Broker,
    /// The database stops, in order or as in a crash, or takes no writes.
    Postgres,
    /// A copy of the database that lacks its last commits takes over.
    LostTail,
    /// The database has no room left for what is written.
    Disk,
    /// The clock of a process jumps.
    Clocks,
    /// A second process comes with the name of another (with --membership static only).
    Twins,
    /// Connections to the database are cut, stand still, or lose answers, those to COMMIT before all.
    Connections,
    /// Others lock what the service writes, for longer than it waits, or in the opposite order; statements are cancelled.
    Locks,
    /// Others take every connection of the database.
    Pool,
    /// The payment provider fails before and after charging, floods, is slow for half a minute, or knows us no more.
    Provider,
    /// The topics for retries and dead letters take no record.
    Copies,
}

impl Scenario {
    /// Its faults.
    pub(super) fn faults(self) -> Vec<Fault> {
        let all = Fault::ALL.iter().copied();
        all.filter(|fault| self == Self::All || fault.scenario() == self).collect()
    }
}

/// One thing that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    KillOne,
    KillAll,
    KillInOutage,
    Zombie,
    JoinAndLeave,
    RollingRestart,
    AddPartition,
    BrokerStop,
    BrokerKill,
    PostgresStop,
    PostgresCrash,
    PostgresReadOnly,
    LostTail,
    DiskFull,
    ClockJump,
    Twin,
    ConnectionReset,
    ConnectionRefused,
    ConnectionBlackhole,
    RepliesDropped,
    CommitsLost,
    SessionsTerminated,
    TableLock,
    Deadlock,
    StatementsCancelled,
    FullPool,
    ProviderErrors,
    ProviderOutage,
    ProviderSlow,
    ProviderFlood,
    ProviderUnauthorized,
    DeadLettersRefused,
    RetriesRefused,
}

impl Fault {
    pub(super) const ALL: &[Self] = &[
        Self::KillOne,
        Self::KillAll,
        Self::KillInOutage,
        Self::Zombie,
        Self::JoinAndLeave,
        Self::RollingRestart,
        Self::AddPartition,
        Self::BrokerStop,
        Self::BrokerKill,
        Self::PostgresStop,
        Self::PostgresCrash,
        Self::PostgresReadOnly,
        Self::LostTail,
        Self::DiskFull,
        Self::ClockJump,
        Self::Twin,
        Self::ConnectionReset,
        Self::ConnectionRefused,
        Self::ConnectionBlackhole,
        Self::RepliesDropped,
        Self::CommitsLost,
        Self::SessionsTerminated,
        Self::TableLock,
        Self::Deadlock,
        Self::StatementsCancelled,
        Self::FullPool,
        Self::ProviderErrors,
        Self::ProviderOutage,
        Self::ProviderSlow,
        Self::ProviderFlood,
        Self::ProviderUnauthorized,
        Self::DeadLettersRefused,
        Self::RetriesRefused,
    ];

    /// Whether no process is left when it is over.
    pub(super) fn leaves_nobody(self) -> bool {
        matches!(self, Self::KillAll | Self::KillInOutage)
    }

    /// How many processes it kills: there are two while nothing is done to them.
    pub(super) fn kills(self) -> usize {
        match self {
            Self::KillOne => 1,
            fault if fault.leaves_nobody() => 2,
            _ => 0,
        }
    }

    /// Whether the broker itself stops.
    pub(super) fn stops_broker(self) -> bool {
        matches!(self, Self::BrokerStop | Self::BrokerKill)
    }

    /// Whether the database itself stops.
    pub(super) fn stops_postgres(self) -> bool {
        matches!(self, Self::PostgresStop | Self::PostgresCrash | Self::LostTail)
    }

    /// Whether it does nothing to processes, so that one of them can be killed beside it.
    pub(super) fn leaves_processes_alone(self) -> bool {
        use Scenario::{Clocks, Kills, Rebalances, Twins, Zombies};
        !matches!(self.scenario(), Clocks | Kills | Rebalances | Twins | Zombies)
    }

    pub(super) fn scenario(self) -> Scenario {
        self.row().0
    }

    /// How it is shown.
    pub(super) fn as_str(self) -> &'static str {
        self.row().1
    }

    /// How long it lasts, in seconds: from, to.
    pub(super) fn lasts(self) -> (f64, f64) {
        self.row().2
    }

    fn row(self) -> (Scenario, &'static str, (f64, f64)) {
        use Scenario::{
            Broker, Clocks, Connections, Copies, Disk, Kills, Locks, Partitions, Pool, Postgres, Provider, Rebalances,
            Twins, Zombies,
        };
        match self {
            Self::KillOne => (Kills, "one process is killed", (0.0, 2.0)),
            Self::KillAll => (Kills, "all processes are killed, and the commits checked", (0.0, 1.0)),
            Self::KillInOutage => {
                (Kills, "all processes are killed while the database or the broker is away", (0.5, 3.0))
            }
            // The session is 4 s.
            Self::Zombie => (Zombies, "a process stands still", (6.0, 12.0)),
            Self::JoinAndLeave => (Rebalances, "a third process joins and leaves", (3.0, 8.0)),
            Self::RollingRestart => (Rebalances, "each process is stopped and started in turn", (0.5, 2.0)),
            Self::AddPartition => (Partitions, "the topic gets another partition", (1.0, 3.0)),
            Self::BrokerStop => (Broker, "the broker stops in order", (2.0, 8.0)),
            Self::BrokerKill => (Broker, "the broker is killed", (1.0, 8.0)),
            Self::PostgresStop => (Postgres, "the database stops in order", (1.0, 8.0)),
            Self::PostgresCrash => (Postgres, "the database stops at once", (0.0, 8.0)),
            Self::PostgresReadOnly => (Postgres, "the database takes no writes", (3.0, 8.0)),
            Self::LostTail => (Scenario::LostTail, "a copy without the last commits takes over", (1.0, 3.0)),
            Self::DiskFull => (Disk, "the database's disk is full", (3.0, 7.0)),
            Self::ClockJump => (Clocks, "the clock of a process jumps", (4.0, 8.0)),
            Self::Twin => (Twins, "a second process takes the name of another", (1.0, 3.0)),
            Self::ConnectionReset => (Connections, "connections to the database are reset", (0.1, 3.0)),
            Self::ConnectionRefused => (Connections, "new connections to the database are refused", (2.0, 6.0)),
            Self::ConnectionBlackhole => (Connections, "connections to the database stand still", (3.0, 9.0)),
            Self::RepliesDropped => (Connections, "the database's answers are swallowed", (0.5, 3.0)),
            Self::CommitsLost => (Connections, "COMMITs or their answers are lost", (3.0, 6.0)),
            Self::SessionsTerminated => (Connections, "sessions are terminated by the database", (1.0, 3.0)),
            // The service waits 5 s for a lock.
            Self::TableLock => (Locks, "somebody locks a table", (5.5, 9.0)),
            Self::Deadlock => (Locks, "somebody locks in the opposite order", (3.0, 6.0)),
            Self::StatementsCancelled => (Locks, "running statements are cancelled", (2.0, 5.0)),
            Self::FullPool => (Pool, "others take every connection of the database", (4.0, 9.0)),
            Self::ProviderErrors => (Provider, "the provider fails before and after charging", (3.0, 8.0)),
            Self::ProviderOutage => (Provider, "the provider refuses everything", (3.0, 8.0)),
            Self::ProviderSlow => (Provider, "the provider answers a share after 30 s", (2.0, 5.0)),
            Self::ProviderFlood => (Provider, "the provider has too many requests", (3.0, 8.0)),
            Self::ProviderUnauthorized => (Provider, "the provider does not know us", (2.0, 6.0)),
            Self::DeadLettersRefused => (Copies, "the dead-letter topic takes nothing", (4.0, 8.0)),
            Self::RetriesRefused => (Copies, "the first two retry topics take nothing", (4.0, 8.0)),
        }
    }
}
