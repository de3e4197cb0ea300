//! What an audit found, for people and for scripts. It judges nothing.

use core::fmt;

use serde_json::{Value, json};

/// The most findings of a kind that are named; all are counted.
const NAMED: usize = 20;

/// The counts and the findings. `distinct_produced` is the sum of `applied`, `dead_lettered`, `ignored`, `pending`,
/// `unknown` and `lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that the topic holds.
    pub produced: u64,
    /// Distinct events, and records that are none.
    pub distinct_produced: u64,
    /// Claimed and in the ledger.
    pub applied: u64,
    /// Deliveries in the topic beyond an event's first.
    pub duplicates: u64,
    /// Distinct events that entered a tier.
    pub retried: u64,
    /// Dead letters that were not applied later.
    pub dead_lettered: u64,
    /// Records of other types, and tombstones.
    pub ignored: u64,
    /// Still to be read.
    pub pending: u64,
    /// Passed so long ago that its dead letter may have expired.
    pub unknown: u64,
    /// Claims and charges of events that the topic does not hold any more.
    pub expired: u64,
    /// Records of source and tiers that are still to be read.
    pub lag: u64,
    /// Passed and nowhere.
    pub lost: u64,
    /// Charges beyond an order's first.
    pub charged_twice: u64,
    /// What contradicts itself.
    pub unexpected: u64,
    /// The findings by name, at most 20 of a kind.
    pub findings: Vec<Finding>,
    /// Whether the provider's record was compared.
    pub provider_was_asked: bool,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Which event, order or record.
    pub what: String,
}

/// The kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Passed and nowhere.
    Lost,
    /// An order was charged more than once.
    ChargedTwice,
    /// A committed reservation without its charge.
    Unfinished,
    /// In the ledger, and its claim is gone before its time.
    ClaimMissing,
    /// A claim of an event that the topic never held.
    ForeignClaim,
    /// A charge of an event that the topic never held.
    ForeignCharge,
    /// In the ledger, and not in the provider's record.
    NotAtProvider,
    /// In the provider's record, and not in the ledger.
    NotInLedger,
    /// It became something else than whoever produced it expects.
    AnotherVerdict,
}

impl FindingKind {
    /// The word for scripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::ChargedTwice => "charged_twice",
            Self::Unfinished => "unfinished_charge",
            Self::ClaimMissing => "claim_missing",
            Self::ForeignClaim => "claim_without_event",
            Self::ForeignCharge => "charge_without_event",
            Self::NotAtProvider => "not_at_provider",
            Self::NotInLedger => "not_in_ledger",
            Self::AnotherVerdict => "another_verdict",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Lost => "nothing became of it",
            Self::ChargedTwice => "the customer paid too often",
            Self::Unfinished => "a reservation was committed without its charge; ask the provider whether it was paid",
            Self::ClaimMissing => {
                "charged, and its claim is gone: only the ledger's row keeps it from being charged again"
            }
            Self::ForeignClaim => "claimed, and the topic never held the event",
            Self::ForeignCharge => "charged, and the topic never held the event",
            Self::NotAtProvider => "the ledger says charged, and the provider has no such charge",
            Self::NotInLedger => "the provider charged it, and the ledger does not know",
            Self::AnotherVerdict => "not what its producer expects",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Findings, all counted and some named.
#[derive(Debug, Default)]
pub(super) struct Findings {
    counts: std::collections::BTreeMap<FindingKind, u64>,
    named: Vec<Finding>,
}

impl Findings {
    pub(super) fn add(&mut self, kind: FindingKind, what: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= NAMED as u64 {
            self.named.push(Finding { kind, what: what() });
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(super) fn into_named(mut self) -> Vec<Finding> {
        self.named.sort();
        self.named
    }
}

impl Report {
    /// Whether nothing is wrong. What is pending is no finding: it is still to be read.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.charged_twice == 0 && self.unexpected == 0
    }

    /// Adds what became something else than its producer expects.
    pub fn add_unexpected(&mut self, what: Vec<String>) {
        self.unexpected += what.len() as u64;
        let named = what.into_iter().take(NAMED).map(|what| Finding { kind: FindingKind::AnotherVerdict, what });
        self.findings.extend(named);
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let counts = self.counts().into_iter().map(|(name, count)| format!("{name:18} {count}\n"));
        let mut text: String = counts.collect();
        for finding in &self.findings {
            text.push_str(&format!("{}: {} ({})\n", finding.kind, finding.what, finding.kind.meaning()));
        }
        if !self.provider_was_asked {
            text.push_str("the provider's own record was not compared\n");
        }
        text
    }

    /// For scripts.
    pub fn to_json(&self) -> Value {
        let counts = self.counts().into_iter().map(|(name, count)| (name.to_owned(), Value::from(count)));
        let mut object: serde_json::Map<String, Value> = counts.collect();
        let findings = self.findings.iter().map(
            |finding| json!({"kind": finding.kind.as_str(), "what": finding.what, "meaning": finding.kind.meaning()}),
        );
        object.insert("findings".to_owned(), findings.collect());
        object.insert("provider_was_asked".to_owned(), self.provider_was_asked.into());
        object.insert("clean".to_owned(), self.is_clean().into());
        Value::Object(object)
    }

    fn counts(&self) -> [(&'static str, u64); 14] {
        [
            ("produced", self.produced),
            ("distinct_produced", self.distinct_produced),
            ("applied", self.applied),
            ("duplicates", self.duplicates),
            ("retried", self.retried),
            ("dead_lettered", self.dead_lettered),
            ("ignored", self.ignored),
            ("pending", self.pending),
            ("unknown", self.unknown),
            ("expired", self.expired),
            ("lag", self.lag),
            ("lost", self.lost),
            ("charged_twice", self.charged_twice),
            ("unexpected", self.unexpected),
        ]
    }
}
