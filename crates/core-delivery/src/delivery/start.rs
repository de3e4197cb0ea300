//! Where a lane starts, from what the broker and the store know of it. Pure. The lower of the two wins: an operator's
//! reset backwards is honoured, a database that went back is caught up, and offsets that the broker forgot cost
//! nothing (D-11).

use crate::ports::{Arrival, StoredPosition};
use crate::record::{Committable, LogIdentity, Offset};

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Read from here on.
    At {
        /// The first offset to be read.
        position: Committable,
        /// What the store holds for this log, for the next compare-and-set.
        stored: Option<Committable>,
        /// What an operator must hear, if anything.
        alarm: Option<Alarm>,
    },
    /// The broker has a position and the store has none: somebody else has consumed here before, and only an operator
    /// can say whether the claims of what they did are in the store.
    Refused {
        /// The broker's position.
        committed: Committable,
    },
}

/// Something unusual about a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// The store has positions of another log of this name: the topic or the cluster was made anew.
    AnotherLog,
    /// The broker's position is ahead of the stored one: the database went back, or the group's offsets were moved
    /// forward with Kafka's own tools, which does not skip anything here. Or there is no record between the two: the
    /// broker's position follows over the ends of transactions, which the store never hears of. The first record that
    /// is delivered [tells](Self::is_shown_by).
    StoreIsBehind {
        /// The broker's position.
        committed: Committable,
        /// The stored one, which is used.
        stored: Committable,
    },
    /// The position lies behind the end of the log: the log is not the one it was.
    PastTheEnd {
        /// The position.
        position: Committable,
    },
    /// Records between the position and the first one that is left have expired unread.
    Expired {
        /// The position.
        position: Committable,
    },
}

impl Alarm {
    /// Whether an operator must hear of it, from the first record that is delivered after the start.
    pub fn is_shown_by(&self, first: Offset) -> bool {
        match self {
            Self::StoreIsBehind { committed, .. } => first.0 < committed.0,
            Self::AnotherLog | Self::PastTheEnd { .. } | Self::Expired { .. } => true,
        }
    }
}

/// Decides where a lane starts.
pub fn start(arrival: &Arrival, positions: &[StoredPosition]) -> Start {
    let Arrival { identity, committed, first, end } = arrival;
    let stored = of_log(positions, identity);
    let earliest = |alarm| Start::At { position: *first, stored, alarm };
    let (wanted, alarm) = match (*committed, stored) {
        (_, None) if !positions.is_empty() => return earliest(Some(Alarm::AnotherLog)),
        (None, None) => return earliest(None),
        (Some(committed), None) => return Start::Refused { committed },
        (None, Some(stored)) => (stored, None),
        (Some(committed), Some(stored)) if committed > stored => {
            (stored, Some(Alarm::StoreIsBehind { committed, stored }))
        }
        (Some(committed), Some(_)) => (committed, None),
    };
    if wanted > *end {
        return earliest(Some(Alarm::PastTheEnd { position: wanted }));
    }
    if wanted < *first {
        return earliest(Some(Alarm::Expired { position: wanted }));
    }
    Start::At { position: wanted, stored, alarm }
}

/// What the store holds for this log.
pub(super) fn of_log(positions: &[StoredPosition], identity: &LogIdentity) -> Option<Committable> {
    positions.iter().find(|position| position.identity == *identity).map(|position| position.next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(topic: &str) -> LogIdentity {
        LogIdentity { cluster: "c".into(), topic: topic.into() }
    }

    fn arrival(committed: Option<i64>) -> Arrival {
        Arrival {
            identity: log("t1"),
            committed: committed.map(Committable),
            first: Committable(10),
            end: Committable(100),
        }
    }

    fn row(topic: &str, next: i64) -> StoredPosition {
        StoredPosition { identity: log(topic), next: Committable(next) }
    }

    fn at(position: i64, stored: Option<i64>, alarm: Option<Alarm>) -> Start {
        Start::At { position: Committable(position), stored: stored.map(Committable), alarm }
    }

    #[test]
    fn a_new_group_starts_at_the_first_record() {
        assert_eq!(start(&arrival(None), &[]), at(10, None, None));
    }

    #[test]
    fn the_lower_position_wins() {
        assert_eq!(start(&arrival(Some(40)), &[row("t1", 50)]), at(40, Some(50), None));
        assert_eq!(start(&arrival(Some(50)), &[row("t1", 50)]), at(50, Some(50), None));
        let (committed, stored) = (Committable(60), Committable(50));
        let alarm = Some(Alarm::StoreIsBehind { committed, stored });
        assert_eq!(start(&arrival(Some(60)), &[row("t1", 50)]), at(50, Some(50), alarm));
    }

    #[test]
    fn a_store_is_behind_if_there_is_a_record_that_it_has_not() {
        let behind = Alarm::StoreIsBehind { committed: Committable(60), stored: Committable(50) };
        assert!(behind.is_shown_by(Offset(50)) && behind.is_shown_by(Offset(59)));
        assert!(!behind.is_shown_by(Offset(60)) && !behind.is_shown_by(Offset(61)), "only the ends of transactions");
        assert!(Alarm::AnotherLog.is_shown_by(Offset(60)));
    }

    #[test]
    fn offsets_that_the_broker_forgot_cost_nothing() {
        assert_eq!(start(&arrival(None), &[row("t1", 50)]), at(50, Some(50), None));
    }

    #[test]
    fn a_position_of_the_broker_alone_is_refused() {
        assert_eq!(start(&arrival(Some(40)), &[]), Start::Refused { committed: Committable(40) });
    }

    #[test]
    fn another_log_starts_at_its_first_record_with_an_alarm() {
        assert_eq!(start(&arrival(Some(40)), &[row("t0", 50)]), at(10, None, Some(Alarm::AnotherLog)));
        assert_eq!(start(&arrival(None), &[row("t0", 50)]), at(10, None, Some(Alarm::AnotherLog)));
        assert_eq!(start(&arrival(Some(40)), &[row("t0", 90), row("t1", 41)]), at(40, Some(41), None));
    }

    #[test]
    fn a_position_outside_of_the_log_starts_at_the_first_record_with_an_alarm() {
        let past = Some(Alarm::PastTheEnd { position: Committable(101) });
        assert_eq!(start(&arrival(None), &[row("t1", 101)]), at(10, Some(101), past));
        let expired = Some(Alarm::Expired { position: Committable(9) });
        assert_eq!(start(&arrival(Some(9)), &[row("t1", 9)]), at(10, Some(9), expired));
        assert_eq!(start(&arrival(Some(100)), &[row("t1", 100)]), at(100, Some(100), None));
    }
}
