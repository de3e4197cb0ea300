//! Sample records for a topic of orders, each with the verdict that a right consumer gives it: orders, duplicates, and
//! records that are bad in several ways. What a consumer makes of them is not known here.

use bytes::Bytes;
use core_order::{Currency, Event, EventId, Money, Order, OrderConfirmed};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngCore, SeedableRng};
use time::OffsetDateTime;

use crate::provider::{ProviderSettings, suffers};

/// What a record is of: whatever has to get one verdict, however often it is delivered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// An event.
    Event(EventId),
    /// A record that no event can be read from, by its key, which no other record has.
    Record(Bytes),
}

/// What a right consumer makes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expected {
    /// It is charged, exactly once.
    Charged,
    /// It costs nothing: applied, and the provider is not asked.
    Free,
    /// It is a dead letter of this class.
    DeadLettered(&'static str),
    /// It is not for this consumer.
    Ignored,
}

/// A record and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The record key.
    pub key: Bytes,
    /// The payload; none for a tombstone.
    pub payload: Option<Bytes>,
    /// What it is of.
    pub subject: Subject,
    /// What becomes of it.
    pub expected: Expected,
}

/// The records of `orders` confirmed orders, in the order in which they are to be written: about one in a hundred is
/// declined by the provider and one in a hundred costs nothing, an eighth are delivered a second time at some later
/// place, and one bad record of each kind is added for every 200 orders.
///
/// The ids are new in every call; `seed` decides which order is what, and where everything lies.
pub fn samples(orders: usize, seed: u64, provider: &ProviderSettings) -> Vec<Sample> {
    let mut random = StdRng::seed_from_u64(seed);
    let run = format!("{:08x}", rand::rng().next_u32());
    let mut placed: Vec<Placed> =
        (0..orders).map(|number| (share(number, orders), order(&run, number, &mut random))).collect();
    for round in 0..orders.div_ceil(200) {
        for (kind, make) in BAD {
            let number = format!("{run}-{kind}-{round}");
            placed.push((random.random(), make(&number)));
        }
        second_events(&run, round, provider, &mut random, &mut placed);
    }
    deliver_again(orders / 8, &mut random, &mut placed);
    // Stable: what is pushed later comes later.
    placed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    placed.into_iter().map(|(_, sample)| sample).collect()
}

/// A sample, and where it lies between the beginning (0) and the end (1).
type Placed = (f64, Sample);

#[expect(clippy::cast_precision_loss, reason = "counts of orders are small")]
fn share(number: usize, of: usize) -> f64 {
    number as f64 / of as f64
}

fn order(run: &str, number: usize, random: &mut StdRng) -> Sample {
    let (customer, amount, expected) = match random.random_range(0..100) {
        0 => ("declined", random.random_range(1..=50_000), Expected::DeadLettered("declined")),
        1 => ("customer", 0, Expected::Free),
        _ => ("customer", random.random_range(1..=50_000), Expected::Charged),
    };
    let event = event(&format!("order-{run}-{number}"), &format!("{customer}-{}", number % 97), amount);
    of_event(&event, expected)
}

/// Two events for one order, which a producer's bug makes: the first is charged, the second must not be. A fault of the
/// first one's charge would let the second one overtake it, so it gets an id that meets none.
fn second_events(run: &str, round: usize, provider: &ProviderSettings, random: &mut StdRng, placed: &mut Vec<Placed>) {
    let order = format!("order-{run}-twice-{round}");
    let first = std::iter::repeat_with(|| event(&order, "customer-twice", 1_200))
        .find(|event| !suffers(provider, &event.id().to_string()))
        .expect("the iterator has no end");
    let second = event(&order, "customer-twice", 1_200);
    let at = random.random();
    placed.push((at, of_event(&first, Expected::Charged)));
    placed.push((random.random_range(at..1.0), of_event(&second, Expected::DeadLettered("order_already_charged"))));
}

/// Writes some events a second time, as a producer does that did not hear the acknowledgement.
fn deliver_again(count: usize, random: &mut StdRng, placed: &mut Vec<Placed>) {
    let events = placed.iter().filter(|(_, sample)| matches!(sample.subject, Subject::Event(_)));
    let mut chosen: Vec<Placed> = events.cloned().collect();
    chosen.shuffle(random);
    chosen.truncate(count);
    placed.extend(chosen.into_iter().map(|(place, again)| (random.random_range(place..1.0), again)));
}

fn event(order: &str, customer: &str, minor_units: i64) -> OrderConfirmed {
    let order = Order {
        id: order.parse().expect("short and printable"),
        customer: customer.parse().expect("short and printable"),
        total: Money { minor_units, currency: Currency::EUR },
    };
    OrderConfirmed::from_order(&order, OffsetDateTime::now_utc()).expect("the amount is not negative")
}

fn of_event(event: &OrderConfirmed, expected: Expected) -> Sample {
    Sample {
        key: Bytes::from(event.key().to_owned()),
        payload: Some(event.to_json().into()),
        subject: Subject::Event(event.id()),
        expected,
    }
}

/// A record under a key of its own that is no event.
fn of_record(key: &str, payload: Option<Vec<u8>>, expected: Expected) -> Sample {
    let key = Bytes::from(key.to_owned());
    Sample { subject: Subject::Record(key.clone()), key, payload: payload.map(Bytes::from), expected }
}

/// A record that was an event before `change` broke its JSON.
fn broken(key: &str, change: impl FnOnce(String) -> Vec<u8>) -> Sample {
    let json = event(key, "customer-broken", 1_200).to_json();
    let json = String::from_utf8(json).expect("JSON is UTF-8");
    of_record(key, Some(change(json)), UNDECODABLE)
}

const UNDECODABLE: Expected = Expected::DeadLettered("undecodable");

/// The name of a kind, and what makes a record of it from a name of its own.
type Kind = (&'static str, fn(&str) -> Sample);

/// The kinds of bad records, and of those that are not for this consumer.
const BAD: [Kind; 13] = [
    ("not-json", |key| of_record(key, Some(b"this is not JSON".to_vec()), UNDECODABLE)),
    ("empty", |key| of_record(key, Some(Vec::new()), UNDECODABLE)),
    ("cut-off", |key| broken(key, |json| json[..json.len() / 2].into())),
    ("byte-order-mark", |key| broken(key, |json| [b"\xef\xbb\xbf", json.as_bytes()].concat())),
    ("not-utf-8", |key| broken(key, not_utf_8)),
    ("no-amount", |key| broken(key, |json| json.replace("\"total_amount\"", "\"total\"").into())),
    ("fraction", |key| broken(key, |json| json.replace("1200", "12.00").into())),
    ("negative", |key| broken(key, |json| json.replace("1200", "-1200").into())),
    ("version-4", |key| broken(key, version_4)),
    ("wrong-key", |key| {
        let event = event(&format!("{key}-other"), "customer-broken", 1_200);
        of_record(key, Some(event.to_json()), Expected::DeadLettered("key_mismatch"))
    }),
    ("future", from_the_future),
    ("shipped", |key| {
        let json = format!(r#"{{"event_type":"OrderShipped","order_id":"{key}"}}"#);
        of_record(key, Some(json.into()), Expected::Ignored)
    }),
    ("tombstone", |key| of_record(key, None, Expected::Ignored)),
];

/// A customer whose name has a byte that UTF-8 never has.
fn not_utf_8(json: String) -> Vec<u8> {
    let name = json.find("customer-broken").expect("that is its name");
    let mut json = json.into_bytes();
    json[name] = 0xff;
    json
}

/// The version is the first digit of an id's third group.
fn version_4(json: String) -> Vec<u8> {
    let id = json.find("\"event_id\":\"").expect("every event has an id") + "\"event_id\":\"".len();
    let version = id + "00000000-0000-".len();
    let mut json = json.into_bytes();
    json[version] = b'4';
    json
}

/// An event whose id claims to be made tomorrow.
fn from_the_future(key: &str) -> Sample {
    let today = event(key, "customer-broken", 1_200);
    let tomorrow = today.id().made_at().plus(std::time::Duration::from_secs(86_400));
    let id = EventId::at(tomorrow, rand::random());
    let json = String::from_utf8(today.to_json()).expect("JSON is UTF-8");
    Sample {
        key: Bytes::from(key.to_owned()),
        payload: Some(json.replace(&today.id().to_string(), &id.to_string()).into()),
        subject: Subject::Event(id),
        expected: Expected::DeadLettered("from_the_future"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use core_delivery::event::UnixMillis;
    use core_delivery::ports::{Decoded, EventDecoder};
    use core_delivery::record::{Offset, Record};
    use core_order::OrderConfirmedDecoder;

    use super::*;

    fn decoded(sample: &Sample) -> Decoded<OrderConfirmed> {
        OrderConfirmedDecoder::new(Currency::EUR).decode(&Record {
            offset: Offset(0),
            timestamp: Some(UnixMillis(0)),
            key: Some(sample.key.clone()),
            payload: sample.payload.clone(),
            headers: Vec::new(),
            unreadable_headers: 0,
        })
    }

    #[test]
    fn a_thousand_orders_hold_enough_of_everything() {
        let samples = samples(1_000, 1, &ProviderSettings::default());
        let subjects: HashMap<&Subject, Expected> = samples.iter().map(|s| (&s.subject, s.expected)).collect();
        let count = |wanted: fn(Expected) -> bool| subjects.values().filter(|expected| wanted(**expected)).count();
        assert!(count(|expected| matches!(expected, Expected::Charged | Expected::Free)) >= 900);
        assert!(samples.len() - subjects.len() >= 100, "duplicates");
        let classes: HashSet<&str> = subjects
            .values()
            .filter_map(|e| if let Expected::DeadLettered(class) = e { Some(*class) } else { None })
            .collect();
        let all = ["declined", "undecodable", "key_mismatch", "from_the_future", "order_already_charged"];
        assert_eq!(classes, HashSet::from(all));
        assert_eq!(count(|expected| expected == Expected::Ignored), 10);
        assert!(count(|expected| expected == Expected::Free) > 0);
    }

    #[test]
    fn every_bad_record_is_as_bad_as_it_says() {
        for sample in samples(200, 1, &ProviderSettings::default()) {
            match (decoded(&sample), sample.expected) {
                (Decoded::Event(event), Expected::Charged | Expected::Free) => {
                    assert_eq!(sample.subject, Subject::Event(event.id()));
                    assert_eq!(event.total().minor_units == 0, sample.expected == Expected::Free);
                }
                (Decoded::Event(event), Expected::DeadLettered("declined")) => {
                    assert!(event.customer_id().as_str().starts_with("declined"));
                }
                (Decoded::Event(event), Expected::DeadLettered("from_the_future")) => {
                    assert!(event.id() > EventId::generate());
                }
                (Decoded::Event(_), Expected::DeadLettered("order_already_charged"))
                | (Decoded::Ignored(_), Expected::Ignored) => {}
                (Decoded::Undecodable(error), Expected::DeadLettered(class)) => assert_eq!(error.class.as_str(), class),
                (decoded, expected) => panic!("{decoded:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn the_second_event_of_an_order_comes_later_and_its_first_meets_no_fault() {
        let provider = ProviderSettings { fault_share: 0.5, ..ProviderSettings::default() };
        let samples = samples(400, 7, &provider);
        let mut firsts: HashMap<&Bytes, &Sample> = HashMap::new();
        for sample in samples.iter().filter(|sample| sample.key.windows(5).any(|part| part == b"twice")) {
            match sample.expected {
                Expected::Charged => {
                    firsts.insert(&sample.key, sample);
                    let Subject::Event(id) = sample.subject else { panic!("an event") };
                    assert!(!suffers(&provider, &id.to_string()));
                }
                _ => assert!(firsts.contains_key(&sample.key)),
            }
        }
        assert_eq!(firsts.len(), 2);
    }

    #[test]
    fn a_duplicate_is_the_same_to_the_byte() {
        let samples = samples(200, 3, &ProviderSettings::default());
        let mut first: HashMap<&Subject, &Sample> = HashMap::new();
        let again =
            samples.iter().filter(|sample| **first.entry(&sample.subject).or_insert(sample) == **sample).count();
        assert_eq!(again, samples.len());
        assert_eq!(samples.len() - first.len(), 25);
    }
}
