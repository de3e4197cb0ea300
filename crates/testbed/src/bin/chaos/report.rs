//! What a run has shown, as a table, as JSON and as one word. The word depends on the audit alone.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use serde_json::{Value, json};
use testbed::clients::{Books, Defect, ProviderSummary};

use crate::{
    campaign::{Course, Plan},
    world::World,
};

/// Defects of one kind that are printed.
const SHOWN: usize = 10;

/// The figures of one run.
pub(crate) struct Figures {
    seed: u64,
    batch_max: u32,
    deliveries: usize,
    kills: Vec<usize>,
    seconds: f64,
    provider: ProviderSummary,
    provider_charges: usize,
    ledger_rows: usize,
    unnamed: usize,
    claims: usize,
    skipped: usize,
    retries: i64,
    dead_letters: usize,
    defects: usize,
}

impl Figures {
    pub(crate) async fn gather(
        world: &World,
        plan: &Plan,
        course: &Course,
        books: &Books,
        defects: &[Defect],
    ) -> Result<Self> {
        Ok(Self {
            seed: plan.seed,
            batch_max: plan.batch_max,
            deliveries: course.deliveries,
            kills: course.kills.clone(),
            seconds: course.took.as_secs_f64(),
            provider: world.provider.summary().await?,
            provider_charges: books.provider.len(),
            ledger_rows: books.ledger.len(),
            unnamed: books.ledger.iter().filter(|row| row.provider_ref.is_none()).count(),
            claims: books.claims.len(),
            skipped: world.times_logged("duplicate skipped")?,
            retries: world.retries().await?,
            dead_letters: books.dead_letters.len(),
            defects: defects.len(),
        })
    }

    pub(crate) fn print(&self) {
        let faults: u64 = self.provider.faults.values().sum();
        let faults_by_kind: Vec<_> =
            self.provider.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let rows = [
            ("records produced", self.deliveries.to_string()),
            ("kills (SIGKILL)", self.kills.len().to_string()),
            ("duration", format!("{:.1} s, restarts and the last retries included", self.seconds)),
            ("ledger rows", format!("{} ({} without the provider's name)", self.ledger_rows, self.unnamed)),
            ("claims", self.claims.to_string()),
            ("duplicates skipped", format!("{} as far as logged before a kill", self.skipped)),
            ("retry records", self.retries.to_string()),
            ("dead letters", self.dead_letters.to_string()),
            ("provider: charges", self.provider_charges.to_string()),
            ("provider: calls", self.provider.calls.to_string()),
            ("provider: repeated calls", self.provider.replays.to_string()),
            ("provider: calls in flight twice", self.provider.conflicts.to_string()),
            ("provider: faults", format!("{faults} ({})", faults_by_kind.join(", "))),
        ];
        println!();
        for (name, value) in rows {
            println!("  {name:<32} {value}");
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "seed": self.seed,
            "batch_max": self.batch_max,
            "records_produced": self.deliveries,
            "charged_at_kills": self.kills,
            "kills": self.kills.len(),
            "seconds": self.seconds,
            "claims": self.claims,
            "ledger_rows": self.ledger_rows,
            "ledger_rows_without_provider_ref": self.unnamed,
            "duplicates_skipped_logged": self.skipped,
            "retry_records": self.retries,
            "dead_letters": self.dead_letters,
            "provider": {
                "charges": self.provider_charges,
                "calls": self.provider.calls,
                "replays": self.provider.replays,
                "conflicts": self.provider.conflicts,
                "key_reuses": self.provider.key_reuses,
                "faults": self.provider.faults,
            },
            "defects": self.defects,
        })
    }
}

/// Prints the word, and what differs; whether nothing does.
pub(crate) fn verdict(defects: &[Defect], seed: u64, logs: &Path) -> bool {
    println!();
    if defects.is_empty() {
        println!("chaos: PASS: each order was charged exactly once, and the provider, the ledger and the claims agree");
        return true;
    }
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for defect in defects {
        kinds.entry((defect.place, defect.kind)).or_default().push(&defect.what);
    }
    println!("chaos: FAIL: {} defects (seed {seed}, the service's logs are in {})", defects.len(), logs.display());
    for ((place, kind), whats) in kinds {
        println!("  {place}, {kind}: {}", whats.len());
        whats.iter().take(SHOWN).for_each(|what| println!("    {what}"));
        if whats.len() > SHOWN {
            println!("    and {} more", whats.len() - SHOWN);
        }
    }
    false
}
