//! Which crate may reach which, over any number of others; a dev-dependency is free.

use super::{Finding, graph::Graph};

/// No crate of `from` may reach one of `to`.
#[derive(Debug)]
pub(super) struct Rule {
    name: &'static str,
    from: Crates,
    to: Crates,
    advice: &'static str,
}

/// Those that match a pattern of `named` and none of `except`: a name, `prefix-*`, or [`WORKSPACE`].
#[derive(Debug)]
struct Crates {
    named: &'static [&'static str],
    except: &'static [&'static str],
}

/// The pattern of all crates of this workspace.
const WORKSPACE: &str = "(workspace)";

const fn crates(named: &'static [&'static str]) -> Crates {
    Crates { named, except: &[] }
}

impl Crates {
    const fn except(self, except: &'static [&'static str]) -> Self {
        Self { except, ..self }
    }

    fn contains(&self, name: &str, graph: &Graph) -> bool {
        let base = name.split('@').next().unwrap_or(name);
        let any = |patterns: &[&str]| {
            patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => base.starts_with(prefix),
                None if *pattern == WORKSPACE => graph.is_member(name),
                None => base == *pattern,
            })
        };
        any(self.named) && !any(self.except)
    }
}

/// The architecture. `from` is always a crate of this workspace.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "the core knows no infrastructure",
        from: crates(&["core-delivery", "core-order"]),
        to: crates(&["sqlx", "sqlx-core", "rdkafka", "rdkafka-sys", "axum", "reqwest", "hyper", "tokio"]),
        advice: "say what the core needs as a port (a trait in the core), and implement it in an adapter",
    },
    Rule {
        name: "the kernel stands alone",
        from: crates(&["core-delivery"]),
        to: crates(&[WORKSPACE]),
        advice: "core-delivery depends on no crate of this workspace: move what it needs into it, or behind a port",
    },
    Rule {
        name: "the order domain knows only the kernel",
        from: crates(&["core-order"]),
        to: crates(&[WORKSPACE]).except(&["core-delivery"]),
        advice: "core-order depends on core-delivery only: say what it needs as a port",
    },
    Rule {
        name: "adapters do not know one another",
        from: crates(&["adapters-*", "infra-*"]),
        to: crates(&["adapters-*", "infra-*"]),
        advice: "let both meet at a port of the core, and join them in compose.rs of the application",
    },
    Rule {
        name: "generic adapters know no orders",
        from: crates(&["adapters-kafka", "infra-postgres"]),
        to: crates(&["core-order"]),
        advice: "another service reuses these two: what is about orders belongs into the application",
    },
    Rule {
        name: "applications are on top",
        from: crates(&[WORKSPACE]).except(&["app-*", "testbed", "xtask", "sandbox"]),
        to: crates(&["app-*"]),
        advice: "move the shared part down into a crate that both may depend on",
    },
    Rule {
        name: "the testbed is not shipped",
        from: crates(&[WORKSPACE]).except(&["testbed", "xtask"]),
        to: crates(&["testbed"]),
        advice: "make it a dev-dependency",
    },
];

/// Every broken rule, with the chain of dependencies that breaks it.
pub(super) fn check(graph: &Graph, rules: &[Rule]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in rules {
        for from in graph.members().filter(|member| rule.from.contains(member, graph)) {
            let chains = graph.chains_to(from, |name| rule.to.contains(name, graph));
            findings.extend(chains.into_iter().map(|chain| Finding {
                rule: rule.name,
                what: chain.join(" -> "),
                advice: rule.advice,
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workspace as it should be, on foreign crates.
    const SOUND: &[(&str, &[&str])] = &[
        ("core-delivery", &["futures"]),
        ("core-order", &["core-delivery"]),
        ("adapters-kafka", &["core-delivery", "rdkafka"]),
        ("adapters-http", &["core-delivery", "core-order", "axum", "reqwest"]),
        ("infra-postgres", &["core-delivery", "sqlx"]),
        ("app-billing", &["adapters-http", "adapters-kafka", "core-order", "infra-postgres", "sandbox"]),
        ("sandbox", &["axum"]),
        ("testbed", &["adapters-kafka", "core-order", "infra-postgres", "rdkafka", "sqlx", "tokio"]),
        ("xtask", &["testbed"]),
    ];

    const FOREIGN: &[(&str, &[&str])] = &[
        ("axum", &["hyper"]),
        ("hyper", &["tokio"]),
        ("rdkafka", &["rdkafka-sys"]),
        ("reqwest", &["hyper"]),
        ("sqlx", &["sqlx-core"]),
        ("sqlx-core", &["tokio"]),
        ("innocent@1.0.0", &["futures"]),
        ("innocent@2.0.0", &["tokio"]),
    ];

    /// The chains that are found when `from` depends on `to` as well.
    fn found_with(from: &str, to: &str) -> Vec<String> {
        let mut graph = Graph::default();
        let known = SOUND.iter().map(|entry| (entry, true));
        for ((name, dependencies), is_member) in known.chain(FOREIGN.iter().map(|entry| (entry, false))) {
            let more = (*name == from).then(|| to.to_owned());
            let dependencies = dependencies.iter().map(ToString::to_string).chain(more);
            graph.insert(name, is_member, dependencies.collect());
        }
        check(&graph, RULES).into_iter().map(|finding| format!("{}: {}", finding.rule, finding.what)).collect()
    }

    #[test]
    fn the_intended_architecture_has_no_findings() {
        assert_eq!(found_with("nobody", "nothing"), [""; 0]);
    }

    #[test]
    fn the_core_may_gain_no_infrastructure() {
        for foreign in ["sqlx", "rdkafka", "axum", "reqwest", "tokio"] {
            let rule = "the core knows no infrastructure";
            assert_eq!(found_with("core-order", foreign), [format!("{rule}: core-order -> {foreign}")]);
            assert_eq!(
                found_with("core-delivery", foreign),
                [
                    format!("{rule}: core-delivery -> {foreign}"),
                    format!("{rule}: core-order -> core-delivery -> {foreign}"),
                ]
            );
        }
    }

    #[test]
    fn an_innocent_crate_in_between_is_seen_through() {
        assert_eq!(
            found_with("core-order", "innocent@2.0.0"),
            ["the core knows no infrastructure: core-order -> innocent@2.0.0 -> tokio"]
        );
        assert_eq!(found_with("core-order", "innocent@1.0.0"), [""; 0]);
    }

    #[test]
    fn no_adapter_may_gain_another() {
        let rule = "adapters do not know one another";
        for (from, to) in [
            ("adapters-kafka", "infra-postgres"),
            ("adapters-http", "adapters-kafka"),
            ("infra-postgres", "adapters-kafka"),
        ] {
            assert_eq!(found_with(from, to), [format!("{rule}: {from} -> {to}")]);
        }
    }

    #[test]
    fn generic_adapters_may_not_gain_the_order_domain() {
        let rule = "generic adapters know no orders";
        for from in ["adapters-kafka", "infra-postgres"] {
            assert_eq!(found_with(from, "core-order"), [format!("{rule}: {from} -> core-order")]);
        }
    }

    #[test]
    fn the_kernel_may_gain_no_crate_of_the_workspace() {
        assert_eq!(
            found_with("core-delivery", "sandbox")[..2],
            [
                "the core knows no infrastructure: core-delivery -> sandbox -> axum",
                "the core knows no infrastructure: core-order -> core-delivery -> sandbox -> axum",
            ]
        );
        let rule = "the kernel stands alone";
        let expected = format!("{rule}: core-delivery -> core-order");
        assert!(found_with("core-delivery", "core-order").contains(&expected));
    }

    #[test]
    fn nothing_below_may_gain_an_application() {
        let found = found_with("infra-postgres", "app-billing");
        assert!(found.contains(&"applications are on top: infra-postgres -> app-billing".to_owned()), "{found:?}");
        assert_eq!(found_with("testbed", "app-billing"), [""; 0]);
    }

    #[test]
    fn no_product_crate_may_gain_the_testbed() {
        assert_eq!(found_with("app-billing", "testbed"), ["the testbed is not shipped: app-billing -> testbed"]);
    }
}
