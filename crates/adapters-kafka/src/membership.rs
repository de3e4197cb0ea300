//! Which protocol the members of a group share its lanes by: read from the passed-through properties and checked. How
//! lanes come and go under each is the rebalance's.

use crate::settings::SettingsError;

const PROTOCOL: &str = "group.protocol";
const STRATEGY: &str = "partition.assignment.strategy";
const HEARTBEAT: &str = "heartbeat.interval.ms";
const INSTANCE: &str = "group.instance.id";
const ASSIGNOR: &str = "group.remote.assignor";

/// What only a member may be given: a client that asks questions beside it is not to look like it, and the client
/// library refuses some of these together with what such a client needs.
const OF_MEMBERS: &[&str] = &[PROTOCOL, STRATEGY, HEARTBEAT, INSTANCE, ASSIGNOR];

/// Assignors of the classic protocol under which a member gives up all lanes at each rebalance.
const EAGER: &[&str] = &["range", "roundrobin"];
/// The one under which only what moves is given up.
const COOPERATIVE: &str = "cooperative-sticky";

/// The protocol between members and broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The members compute the assignment; the session timeout is the member's.
    Classic,
    /// The broker does (KIP-848), and its settings say when a silent member is gone.
    Consumer,
}

impl Protocol {
    /// That of these properties, the last of which counts.
    pub(crate) fn of(properties: &[(String, String)]) -> Self {
        let chosen = properties.iter().rev().find(|(key, _)| key == PROTOCOL);
        match chosen {
            Some((_, value)) if value == "consumer" => Self::Consumer,
            _ => Self::Classic,
        }
    }
}

/// Whether a client that joins no group may be given this property.
pub(crate) fn is_of_members(key: &str) -> bool {
    OF_MEMBERS.contains(&key)
}

/// Checks how the properties of members fit together.
pub(crate) fn check(properties: &[(String, String)]) -> Result<(), SettingsError> {
    let protocol = Protocol::of(properties);
    for (key, value) in properties {
        let problem = match (key.as_str(), protocol) {
            (PROTOCOL, _) if !["classic", "consumer"].contains(&value.as_str()) => {
                Some((PROTOCOL, "must be `classic` or `consumer`"))
            }
            (STRATEGY, Protocol::Classic) => strategy(value).map(|reason| (STRATEGY, reason)),
            (STRATEGY, Protocol::Consumer) => Some((STRATEGY, AT_THE_BROKER)),
            (HEARTBEAT, Protocol::Consumer) => Some((HEARTBEAT, AT_THE_BROKER)),
            (ASSIGNOR, Protocol::Classic) => Some((ASSIGNOR, "needs `group.protocol=consumer`")),
            (INSTANCE, _) if value.trim().is_empty() => Some((INSTANCE, "is empty")),
            _ => None,
        };
        if let Some((setting, reason)) = problem {
            return Err(SettingsError::Invalid { setting, reason });
        }
    }
    Ok(())
}

const AT_THE_BROKER: &str = "cannot be set with `group.protocol=consumer`: the broker decides it";

/// What is wrong with a list of assignors.
fn strategy(list: &str) -> Option<&'static str> {
    let names = || list.split(',').map(str::trim);
    if names().all(|name| name == COOPERATIVE) || names().all(|name| EAGER.contains(&name)) {
        return None;
    }
    Some(match names().any(|name| name == COOPERATIVE) {
        true => "cannot mix `cooperative-sticky` with others: one gives up only what moves, the others everything",
        false => "must be `cooperative-sticky`, or one or both of `range` and `roundrobin`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(properties: &[(&str, &str)]) -> Result<Protocol, String> {
        let owned: Vec<_> = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        check(&owned).map(|()| Protocol::of(&owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_way_of_sharing_lanes_is_taken() {
        assert_eq!(checked(&[]), Ok(Protocol::Classic));
        assert_eq!(checked(&[(STRATEGY, "range,roundrobin")]), Ok(Protocol::Classic));
        assert_eq!(checked(&[(STRATEGY, "roundrobin"), (INSTANCE, "billing-1")]), Ok(Protocol::Classic));
        assert_eq!(checked(&[(PROTOCOL, "classic"), (STRATEGY, "cooperative-sticky")]), Ok(Protocol::Classic));
        let both = [(PROTOCOL, "consumer"), (INSTANCE, "billing-1"), (ASSIGNOR, "uniform")];
        assert_eq!(checked(&both), Ok(Protocol::Consumer));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_by_name() {
        for (properties, named) in [
            (vec![(PROTOCOL, "Consumer")], "`group.protocol` must be"),
            (vec![(STRATEGY, "sticky")], "`partition.assignment.strategy` must be"),
            (vec![(STRATEGY, "range,cooperative-sticky")], "`partition.assignment.strategy` cannot mix"),
            (vec![(STRATEGY, "range"), (PROTOCOL, "consumer")], "`partition.assignment.strategy` cannot be set"),
            (vec![(PROTOCOL, "consumer"), (HEARTBEAT, "100")], "`heartbeat.interval.ms` cannot be set"),
            (vec![(ASSIGNOR, "uniform")], "`group.remote.assignor` needs"),
            (vec![(INSTANCE, " ")], "`group.instance.id` is empty"),
        ] {
            let error = checked(&properties).expect_err(named);
            assert!(error.contains(named), "{error}");
        }
    }
}
