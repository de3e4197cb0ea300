//! Whether everything in the sample became what it should, record by record, by what the ledger, the claims, the dead
//! letters and the provider's own record say of it. Pure; it knows nothing of the audit, so that each checks the other.

use std::collections::{BTreeSet, HashMap, HashSet};

use core_delivery::event::EventId;
use sandbox::samples::{Expected, Sample, Subject};

/// What is written about the sample.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Completed rows of the ledger.
    pub(super) ledger: HashSet<EventId>,
    pub(super) claims: HashSet<EventId>,
    /// How often each key's money moved.
    pub(super) provider: HashMap<EventId, usize>,
    /// The classes of each one's dead letters.
    pub(super) letters: HashMap<Subject, BTreeSet<String>>,
}

/// What became something else than the sample says: one line each.
pub(super) fn compare(samples: &[Sample], books: &Books) -> Vec<String> {
    let mut seen = HashSet::new();
    let distinct = samples.iter().filter(|sample| seen.insert(&sample.subject));
    distinct
        .filter_map(|sample| {
            let (is, wanted) = (books.of(&sample.subject), Traces::of(sample.expected));
            let subject = match &sample.subject {
                Subject::Event(id) => format!("event {id}"),
                Subject::Record(key) => format!("record {}", String::from_utf8_lossy(key)),
            };
            (is != wanted).then(|| format!("{subject}: expected {wanted:?}, found {is:?}"))
        })
        .collect()
}

/// Everything that a verdict leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl Books {
    fn of(&self, subject: &Subject) -> Traces {
        let letters = self.letters.get(subject).cloned().unwrap_or_default();
        let Subject::Event(id) = subject else {
            return Traces { in_ledger: false, claimed: false, paid: 0, letters };
        };
        Traces {
            in_ledger: self.ledger.contains(id),
            claimed: self.claims.contains(id),
            paid: self.provider.get(id).copied().unwrap_or(0),
            letters,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn sample(subject: &Subject, expected: Expected) -> Sample {
        Sample { key: Bytes::from_static(b"o-1"), payload: None, subject: subject.clone(), expected }
    }

    #[test]
    fn a_charge_leaves_a_row_a_claim_and_one_payment() {
        let id = EventId::generate();
        let subject = Subject::Event(id);
        let charged = || Books {
            ledger: HashSet::from([id]),
            claims: HashSet::from([id]),
            provider: HashMap::from([(id, 1)]),
            letters: HashMap::new(),
        };
        let wanted = [sample(&subject, Expected::Charged), sample(&subject, Expected::Charged)];
        assert_eq!(compare(&wanted, &charged()), Vec::<String>::new());
        let wrong = [
            Books { ledger: HashSet::new(), ..charged() },
            Books { claims: HashSet::new(), ..charged() },
            Books { provider: HashMap::from([(id, 2)]), ..charged() },
            Books { provider: HashMap::new(), ..charged() },
            Books { letters: HashMap::from([(subject.clone(), BTreeSet::from(["declined".to_owned()]))]), ..charged() },
        ];
        for books in wrong {
            assert_eq!(compare(&wanted, &books).len(), 1, "{books:?}");
        }
        assert_eq!(compare(&[sample(&subject, Expected::Free)], &charged()).len(), 1, "a free order was paid for");
    }

    #[test]
    fn a_dead_letter_has_its_class_and_nothing_else() {
        let subject = Subject::Record(Bytes::from_static(b"o-1"));
        let letter = |class: &str| Books {
            letters: HashMap::from([(subject.clone(), BTreeSet::from([class.to_owned()]))]),
            ..Books::default()
        };
        let wanted = [sample(&subject, Expected::DeadLettered("undecodable"))];
        assert_eq!(compare(&wanted, &letter("undecodable")), Vec::<String>::new());
        assert_eq!(compare(&wanted, &letter("key_mismatch")).len(), 1);
        assert_eq!(compare(&wanted, &Books::default()).len(), 1, "it is lost");
        assert_eq!(compare(&[sample(&subject, Expected::Ignored)], &letter("undecodable")).len(), 1);
    }
}
