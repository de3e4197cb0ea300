//! What a seeded run has shown, as a table, as JSON and as one word, with the timelines of what differs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testbed::clients::ProviderSummary;

use super::{
    Plan,
    failover::LostTails,
    faults::{Fault, Scenario},
    judge::{Finding, Judgement},
    order::Order,
    schedule::Step,
    world::Stops,
};

/// Findings that are printed.
const SHOWN: usize = 20;

/// The figures of a run.
pub(super) struct Report<'a> {
    pub(super) plan: &'a Plan,
    pub(super) steps: &'a [Step],
    pub(super) done: &'a BTreeMap<Fault, usize>,
    pub(super) seconds: f64,
    pub(super) orders: usize,
    pub(super) records: usize,
    pub(super) expected: (usize, usize),
    pub(super) judgement: &'a Judgement,
    pub(super) pending: i64,
    /// Processes of the service that charges, and of the one that journals.
    pub(super) killed: (usize, usize),
    pub(super) stops: Stops,
    pub(super) lost_tails: &'a LostTails,
    pub(super) order: &'a Order,
    pub(super) rebalances: usize,
    pub(super) checks: usize,
    pub(super) commits_without_verdict: usize,
    pub(super) provider: &'a ProviderSummary,
    /// What the database complained of.
    pub(super) complaints: BTreeMap<&'static str, usize>,
    /// Records of each retry tier.
    pub(super) tiers: BTreeMap<&'a str, usize>,
}

impl Report<'_> {
    fn times(&self, of: impl Fn(Fault) -> bool) -> usize {
        self.done.iter().filter(|(fault, _)| of(**fault)).map(|(_, times)| times).sum()
    }

    /// Faults of the database, and of the way to it, that did not stop it.
    fn other_postgres_faults(&self) -> usize {
        use Scenario::{Connections, Disk, Locks, Pool};
        self.times(|fault| {
            fault == Fault::PostgresReadOnly || matches!(fault.scenario(), Connections | Disk | Locks | Pool)
        })
    }

    fn provider_faults(&self) -> u64 {
        self.provider.faults.values().sum::<u64>() + self.provider.unauthorized
    }

    pub(super) fn print(&self) {
        let faults: Vec<_> = self.provider.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let complaints: Vec<_> = self.complaints.iter().map(|(words, count)| format!("{words} {count}")).collect();
        let tiers: Vec<_> = self.tiers.iter().map(|(tier, records)| format!("{tier}: {records}")).collect();
        let rows = [
            ("records produced", format!("{} of {} orders", self.records, self.orders)),
            ("duration", format!("{:.1} s, the last retries included", self.seconds)),
            ("kills (SIGKILL)", format!("{}, and {} of the second service", self.killed.0, self.killed.1)),
            ("rebalances", self.rebalances.to_string()),
            ("broker interruptions", format!("{} stops", self.stops.broker)),
            (
                "postgres interruptions",
                format!(
                    "{} stops and {} others (its log: {})",
                    self.stops.postgres,
                    self.other_postgres_faults(),
                    complaints.join(", ")
                ),
            ),
            (
                "lost with a database",
                format!("{} confirmed claims, {} times", self.lost_tails.claims, self.lost_tails.times),
            ),
            (
                "provider faults",
                format!(
                    "{} ({}, unauthorized {})",
                    self.provider_faults(),
                    faults.join(", "),
                    self.provider.unauthorized
                ),
            ),
            ("retry records by tier", tiers.join(", ")),
            ("applied", format!("{} of {} expected", self.judgement.applied, self.expected.0)),
            ("dead-lettered", format!("{} of {} expected", self.judgement.dead_lettered, self.expected.1)),
            ("lost", self.judgement.lost.to_string()),
            ("charged twice", self.judgement.charged_twice.to_string()),
            (
                "commits without a verdict",
                format!("{}, in {} checks with no process alive", self.commits_without_verdict, self.checks),
            ),
            (
                "key order violations",
                format!(
                    "{} in {} keys with {} events in all; {} other keys lost effects with a database",
                    self.order.violations.len(),
                    self.order.keys - self.order.made_again,
                    self.order.steps,
                    self.order.made_again
                ),
            ),
            ("pending", self.pending.to_string()),
        ];
        println!();
        for (name, value) in rows {
            println!("  {name:<26} {value}");
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let done: BTreeMap<_, _> = self.done.iter().map(|(fault, times)| (fault.as_str(), times)).collect();
        json!({
            "seed": self.plan.seed,
            "minutes": self.plan.time.as_secs_f64() / 60.0,
            "schedule": self.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
            "faults": done,
            "seconds": self.seconds,
            "orders": self.orders,
            "records_produced": self.records,
            "membership": self.plan.membership.as_str(),
            "kills": self.killed.0,
            "kills_of_second_service": self.killed.1,
            "rebalances": self.rebalances,
            "broker_interruptions": self.stops.broker,
            "postgres_interruptions": self.stops.postgres,
            "postgres_faults_without_a_stop": self.other_postgres_faults(),
            "databases_that_lost_a_tail": self.lost_tails.times,
            "claims_lost_with_a_database": self.lost_tails.claims,
            "postgres_log": self.complaints,
            "provider_faults": self.provider_faults(),
            "provider": {
                "charges": self.provider.charges,
                "calls": self.provider.calls,
                "replays": self.provider.replays,
                "conflicts": self.provider.conflicts,
                "key_reuses": self.provider.key_reuses,
                "unauthorized": self.provider.unauthorized,
                "faults": self.provider.faults,
            },
            "lost": self.judgement.lost,
            "charged_twice": self.judgement.charged_twice,
            "key_orders_checked": self.order.keys - self.order.made_again,
            "key_orders_made_again_after_a_lost_tail": self.order.made_again,
            "key_order_events": self.order.steps,
            "key_order_violations": self.order.violations.len(),
            "key_order_events_lost": self.order.lost,
            "key_order_events_doubled": self.order.doubled,
            "commits_checked": self.checks,
            "commits_without_verdict": self.commits_without_verdict,
            "applied": self.judgement.applied,
            "expected_applied": self.expected.0,
            "dead_lettered": self.judgement.dead_lettered,
            "expected_dead_lettered": self.expected.1,
            "pending": self.pending,
            "tiers": self.tiers,
            "findings": self.judgement.findings.iter().map(|finding| &finding.what).collect::<Vec<_>>(),
        })
    }

    /// Prints the word, and what differs; whether nothing does.
    pub(super) fn verdict(&self, timelines: &[Vec<String>]) -> bool {
        println!();
        let findings = &self.judgement.findings;
        if findings.is_empty() {
            println!("chaos: PASS: every record got the verdict that was fixed for it, and nobody paid twice");
            return true;
        }
        let (seed, logs) = (self.plan.seed, self.plan.logs.display());
        println!("chaos: FAIL: {} findings (seed {seed}, the processes' logs are in {logs})", findings.len());
        findings.iter().take(SHOWN).for_each(|finding| println!("  {}", finding.what));
        if findings.len() > SHOWN {
            println!("  and {} more", findings.len() - SHOWN);
        }
        for timeline in timelines {
            println!();
            timeline.iter().for_each(|line| println!("  {line}"));
        }
        false
    }
}

/// The subjects whose timelines are shown.
pub(super) fn concerned(findings: &[Finding]) -> Vec<usize> {
    let mut subjects: Vec<usize> = findings.iter().filter_map(|finding| finding.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects.truncate(5);
    subjects
}
