//! The audit of a seeded run: what everybody has written about each subject, held against the verdict that was fixed
//! before the run. Pure; it collects nothing and repairs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sandbox::samples::{Expected, Sample, Subject};
use testbed::clients::{Books, ChargeRow, ProviderCharge};
use uuid::Uuid;

use super::load::{Load, name};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Which subject it is about, if it is about one.
    pub(super) subject: Option<usize>,
    pub(super) what: String,
}

/// What was found out.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) findings: Vec<Finding>,
    /// Subjects that left nothing behind, though they should have been applied or dead-lettered.
    pub(super) lost: usize,
    /// Orders for which money moved more than once.
    pub(super) charged_twice: usize,
    pub(super) applied: usize,
    pub(super) dead_lettered: usize,
}

/// Everything that a verdict leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Traces {
    in_ledger: bool,
    claimed: bool,
    paid: usize,
    letters: BTreeSet<String>,
}

impl Traces {
    fn of(expected: Expected) -> Self {
        let applied = matches!(expected, Expected::Charged | Expected::Free);
        let letters = match expected {
            Expected::DeadLettered(class) => BTreeSet::from([class.to_owned()]),
            Expected::Charged | Expected::Free | Expected::Ignored => BTreeSet::new(),
        };
        Self { in_ledger: applied, claimed: applied, paid: usize::from(expected == Expected::Charged), letters }
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Holds the books against the load.
pub(super) fn judge(load: &Load, books: &Books) -> Judgement {
    let mut judgement = Judgement::default();
    let traces = gather(load, books, &mut judgement);
    let rivals = rivals(&load.subjects);
    for (number, sample) in load.subjects.iter().enumerate() {
        let is = &traces[number];
        judgement.applied += usize::from(is.in_ledger && is.claimed);
        judgement.dead_lettered += usize::from(!is.letters.is_empty());
        let wanted = Traces::of(sample.expected);
        if !wanted.is_nothing() && is.is_nothing() {
            judgement.lost += 1;
        }
        // Of two events for an order one is charged and the other refused; which is the first one may turn.
        let other_way = rivals.get(&number).is_some_and(|rival| {
            let [ours, theirs] = [number, *rival].map(|n| Traces::of(load.subjects[n].expected));
            *is == theirs && traces[*rival] == ours
        });
        if *is != wanted && !other_way {
            judgement.add(Some(number), format!("{}: expected {wanted:?}, found {is:?}", name(sample)));
        }
    }
    let mut orders: BTreeMap<&str, usize> = BTreeMap::new();
    for charge in books.provider.iter().filter(|charge| moved(charge)) {
        *orders.entry(&charge.order_id).or_default() += 1;
    }
    for (order, times) in orders.into_iter().filter(|(_, times)| *times > 1) {
        judgement.charged_twice += 1;
        let subject = load.subjects.iter().position(|sample| sample.key == order.as_bytes());
        judgement.add(subject, format!("order {order}: money moved {times} times"));
    }
    if books.key_reuses > 0 {
        judgement.add(None, format!("{} calls had another body than an earlier one of their key", books.key_reuses));
    }
    judgement
}

impl Judgement {
    pub(super) fn add(&mut self, subject: Option<usize>, what: String) {
        self.findings.push(Finding { subject, what });
    }
}

/// The traces of each subject. What is of none, or has other data than its event, is a finding.
fn gather(load: &Load, books: &Books, judgement: &mut Judgement) -> Vec<Traces> {
    let mut traces = vec![Traces::default(); load.subjects.len()];
    for charge in books.provider.iter().filter(|charge| moved(charge)) {
        match load.of_event(&charge.idempotency_key) {
            Some(number) => {
                traces[number].paid += 1;
                differing(&load.subjects[number], &charge.order_id, charge.amount, "provider", number, judgement);
            }
            None => judgement.add(
                load.subjects.iter().position(|sample| sample.key == charge.order_id.as_bytes()),
                format!(
                    "provider: charge {} of order {} has the key {:?} of no event",
                    charge.id, charge.order_id, charge.idempotency_key
                ),
            ),
        }
    }
    for row in &books.ledger {
        match load.of_event(&row.event_id.to_string()) {
            Some(number) if row.charged => {
                traces[number].in_ledger = true;
                differing(&load.subjects[number], &row.order_id, row.amount_minor, "ledger", number, judgement);
            }
            subject => judgement.add(subject, unfinished(row)),
        }
    }
    for claim in &books.claims {
        match load.of_event(&Uuid::to_string(claim)) {
            Some(number) => traces[number].claimed = true,
            None => judgement.add(None, format!("claims: {claim} is no event")),
        }
    }
    for letter in &books.dead_letters {
        let class = letter.header("delivery-error-class").unwrap_or("none");
        match load.of_record(letter) {
            Some(number) => drop(traces[number].letters.insert(class.to_owned())),
            None => judgement.add(
                None,
                format!("dead letters: {}/{} ({class}) is a copy of no record", letter.partition, letter.offset),
            ),
        }
    }
    traces
}

fn moved(charge: &ProviderCharge) -> bool {
    charge.status == "succeeded"
}

fn unfinished(row: &ChargeRow) -> String {
    let state = if row.charged { "of no event" } else { "reserved and never charged" };
    format!("ledger: event {}, order {}: {state}", row.event_id, row.order_id)
}

fn differing(sample: &Sample, order: &str, amount: i64, place: &str, number: usize, judgement: &mut Judgement) {
    let event: serde_json::Value =
        sample.payload.as_deref().and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
    if event["order_id"] != order || event["total_amount"] != amount {
        let what = format!("{}: {place} has order {order} and amount {amount}, not those of {event}", name(sample));
        judgement.add(Some(number), what);
    }
}

/// The two events of each order that has two.
fn rivals(subjects: &[Sample]) -> HashMap<usize, usize> {
    let mut of_order: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (number, sample) in subjects.iter().enumerate() {
        if matches!(sample.subject, Subject::Event(_)) {
            of_order.entry(&sample.key).or_default().push(number);
        }
    }
    let pairs = of_order.into_values().filter_map(|numbers| <[usize; 2]>::try_from(numbers).ok());
    pairs.flat_map(|[one, other]| [(one, other), (other, one)]).collect()
}

#[cfg(test)]
mod tests;
