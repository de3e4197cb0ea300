//! Whether everything in the sample became what it should, record by record, from the ledger, the claims, the dead
//! letters and the provider's own record. It reads them afresh, and not through the audit, so that each checks the other.

use std::collections::{BTreeSet, HashMap, HashSet};

use adapters_kafka::read_topic;
use bytes::Bytes;
use core_delivery::event::{Event, EventId};
use core_delivery::headers::last_failure;
use core_delivery::ports::{Decoded, EventDecoder};
use core_order::OrderConfirmedDecoder;
use sandbox::provider::ProviderRecord;
use sandbox::samples::{Expected, Sample, Subject};
use uuid::Uuid;

use crate::cli::Failure;
use crate::compose::open_database;
use crate::operators::compose::{Desk, database};
use crate::operators::dlq;

/// What is written about the sample.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Completed rows of the ledger.
    ledger: HashSet<EventId>,
    claims: HashSet<EventId>,
    /// How often each key's money moved.
    provider: HashMap<EventId, usize>,
    /// The classes of each one's dead letters.
    letters: HashMap<Subject, BTreeSet<String>>,
}

pub(super) async fn read(desk: &Desk, provider: &ProviderRecord) -> Result<Books, Failure> {
    let mut books = Books::default();
    let (pool, _) = open_database(&desk.settings.database).await?;
    let ids = |rows: Vec<Uuid>| rows.into_iter().filter_map(|id| EventId::try_from(id).ok()).collect();
    let ledger = sqlx::query_scalar("select event_id from charge where charged_at is not null").fetch_all(&pool);
    books.ledger = ids(ledger.await.map_err(database)?);
    let claims = sqlx::query_scalar("select event_id from processed_event where consumer_group = $1");
    books.claims = ids(claims.bind(desk.topology.group.as_str()).fetch_all(&pool).await.map_err(database)?);
    for charge in provider.succeeded() {
        if let Ok(event) = charge.idempotency_key.parse() {
            *books.provider.entry(event).or_default() += 1;
        }
    }
    let decoder = OrderConfirmedDecoder::new(desk.settings.config.currency);
    let reading = read_topic(&desk.kafka, &desk.topology.dead_letters, |record, _| {
        let class = last_failure(&record).class.unwrap_or("none").to_owned();
        let subject = match decoder.decode(&record) {
            Decoded::Event(event) => Subject::Event(event.id()),
            _ => Subject::Record(record.key.clone().unwrap_or_else(Bytes::new)),
        };
        books.letters.entry(subject).or_default().insert(class);
    });
    reading.await.map_err(dlq::failure)?;
    Ok(books)
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
