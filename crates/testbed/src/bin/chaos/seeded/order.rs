//! The order of effects within a key: numbered events for the service `ordered`, and its journal held against the order in
//! which the topic has them. Pure; it reads and writes nothing itself.
//!
//! What is promised and so checked: of each key every event has its effect once, and the effects come in the order of the
//! topic, in which a second delivery does not count. Nothing goes through retry topics here. Where a database lost effects,
//! those that are made again may come after later ones, and the order of their keys is not checked.

use std::collections::{BTreeMap, HashMap, HashSet};

use core_order::EventId;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::Value;
use testbed::clients::ReadRecord;

/// Events of each key.
const STEPS: usize = 8;
/// Keys whose events lie among one another.
const AMONG_ONE_ANOTHER: usize = 40;
/// The share of events that are written a second time.
const AGAIN: f64 = 0.1;

/// A record: key and payload.
pub(super) type Written = (Vec<u8>, Vec<u8>);

/// About so many numbered events, in the order in which they are to be written.
pub(super) fn steps(events: usize, seed: u64) -> Vec<Written> {
    let mut random = StdRng::seed_from_u64(seed);
    let keys: Vec<String> = (0..events.div_ceil(STEPS)).map(|key| format!("key-{key}")).collect();
    let mut written = Vec::new();
    for some in keys.chunks(AMONG_ONE_ANOTHER) {
        let mut turns: Vec<usize> = (0..some.len() * STEPS).map(|turn| turn % some.len()).collect();
        turns.shuffle(&mut random);
        let mut of_keys: Vec<Vec<Written>> = vec![Vec::new(); some.len()];
        for turn in turns {
            let before = &mut of_keys[turn];
            let step = step(&some[turn], before.len() + 1);
            before.push(step.clone());
            written.push(step);
            if random.random_bool(AGAIN) {
                written.push(before[random.random_range(0..before.len())].clone());
            }
        }
    }
    written
}

fn step(key: &str, number: usize) -> Written {
    let json = format!(r#"{{"event_id":"{}","key":"{key}","number":{number}}}"#, EventId::generate());
    (key.as_bytes().to_vec(), json.into_bytes())
}

/// What is known about the effects.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// The records of the topic.
    pub(super) topic: Vec<ReadRecord>,
    /// What was recorded within units, in the order of its places: key and number.
    pub(super) recorded: Vec<(String, i32)>,
    /// What was performed outside of them, in the same way; a second try is no mistake.
    pub(super) performed: Vec<(String, i32)>,
    /// Keys of which effects were lost with a database. They were in order once; made again, they come after those that
    /// were not lost, and only their number is checked.
    pub(super) made_again: HashSet<String>,
}

/// What was found out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) keys: usize,
    /// Those of them whose order says nothing, since effects of theirs were lost with a database.
    pub(super) made_again: usize,
    pub(super) steps: usize,
    /// Steps without their effect.
    pub(super) lost: usize,
    /// Steps that were recorded more than once.
    pub(super) doubled: usize,
    /// Keys whose effects came in another order than that of the topic, one line each.
    pub(super) violations: Vec<String>,
}

/// Holds the journals against the topic.
pub(super) fn judge(journals: &Journals) -> Order {
    let mut order = Order::default();
    let (recorded, performed) = (by_key(&journals.recorded), by_key(&journals.performed));
    let none = Vec::new();
    for ((partition, key), wanted) in in_topic(&journals.topic) {
        order.keys += 1;
        order.steps += wanted.len();
        let (all, tried) = (recorded.get(key.as_str()).unwrap_or(&none), performed.get(key.as_str()).unwrap_or(&none));
        let (once, first_tries) = (first_of_each(all), first_of_each(tried));
        order.doubled += all.len() - once.len();
        order.lost += wanted.iter().filter(|number| !once.contains(number)).count();
        if journals.made_again.contains(&key) {
            order.made_again += 1;
            continue;
        }
        for (what, is) in [("recorded", &once), ("performed", &first_tries)] {
            let there: HashSet<_> = is.iter().collect();
            let expected: Vec<i32> = wanted.iter().copied().filter(|number| there.contains(number)).collect();
            if *is != expected {
                order
                    .violations
                    .push(format!("{key} in partition {partition}: {what} {is:?}, the topic has {wanted:?}"));
            }
        }
        if once.iter().any(|number| !first_tries.contains(number)) {
            order
                .violations
                .push(format!("{key} in partition {partition}: recorded {once:?}, performed {first_tries:?}"));
        }
    }
    order
}

/// The numbers of each key in the order of the topic, by partition.
fn in_topic(records: &[ReadRecord]) -> BTreeMap<(i32, String), Vec<i32>> {
    let mut records: Vec<_> = records.iter().collect();
    records.sort_by_key(|record| (record.partition, record.offset));
    let mut found: BTreeMap<(i32, String), Vec<i32>> = BTreeMap::new();
    for record in records {
        let json: Value =
            record.payload.as_deref().and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
        let number = json["number"].as_i64().and_then(|number| i32::try_from(number).ok());
        let (Some(key), Some(number)) = (json["key"].as_str(), number) else { continue };
        let numbers = found.entry((record.partition, key.to_owned())).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    found
}

fn by_key(rows: &[(String, i32)]) -> HashMap<&str, Vec<i32>> {
    let mut found: HashMap<&str, Vec<i32>> = HashMap::new();
    for (key, number) in rows {
        found.entry(key).or_default().push(*number);
    }
    found
}

fn first_of_each(numbers: &[i32]) -> Vec<i32> {
    let mut seen = HashSet::new();
    numbers.iter().copied().filter(|number| seen.insert(*number)).collect()
}

#[cfg(test)]
mod tests;
