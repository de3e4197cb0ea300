//! Commits without a verdict: with no process alive, neither the group's offset nor the stored position may be beyond a
//! record that has neither a claim nor an acknowledged copy, and is not to be ignored (D-2).

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use sandbox::samples::{Expected, Sample, Subject};
use testbed::clients::ReadRecord;

use super::{
    load::{Load, name},
    world::{GROUP, TOPIC, World, dead_letter_topic, retry_topics},
};

/// A record that was passed without a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passed {
    /// Which subject it is of, if it is one of ours.
    pub(super) subject: Option<usize>,
    pub(super) what: String,
}

/// Looks at everything, while no process is alive. The offsets are read first: what comes after them can only be more.
pub(super) async fn check(world: &World, load: &Load) -> Result<Vec<Passed>> {
    let topics: Vec<String> = std::iter::once(TOPIC.to_owned()).chain(retry_topics()).collect();
    let mut done: HashMap<(String, i32), i64> = HashMap::new();
    for topic in &topics {
        let partitions = i32::try_from(world.kafka.end_offsets(topic).await?.len())?;
        let committed = world.kafka.committed(GROUP, topic, partitions).await?;
        done.extend((0..).zip(committed).filter_map(|(lane, next)| Some(((topic.clone(), lane), next?))));
    }
    for position in world.ledger.positions(GROUP).await? {
        let next = done.entry((position.topic, position.partition)).or_default();
        *next = match world.lost_tails.times {
            0 => position.next_offset.max(*next),
            // A lane starts from the lower of the two; where the database went back, that is its position.
            _ => position.next_offset.min(*next),
        };
    }
    let claims: HashSet<_> = world.ledger.claims(GROUP).await?.into_iter().map(|id| id.to_string()).collect();
    let mut records = Vec::new();
    for topic in topics.into_iter().chain([dead_letter_topic()]) {
        records.push((world.kafka.read_all(&topic).await?, topic));
    }
    Ok(find(load, &done, &claims, &records))
}

/// The source and the tiers in their order, then the dead letters. A copy further on is the verdict on what it is of.
fn find(
    load: &Load,
    done: &HashMap<(String, i32), i64>,
    claims: &HashSet<String>,
    topics: &[(Vec<ReadRecord>, String)],
) -> Vec<Passed> {
    let mut passed = Vec::new();
    // By origin: how often it had been tried when the last copy was made.
    let mut copies: HashMap<(String, String), u32> = HashMap::new();
    for (records, topic) in &topics[1..] {
        for copy in records {
            if let Some((origin, attempts)) = origin(copy) {
                // A dead letter is the end, also of an event that was not tried again.
                let attempts = if *topic == dead_letter_topic() { u32::MAX } else { attempts };
                let most = copies.entry(origin).or_default();
                *most = attempts.max(*most);
            }
        }
    }
    for (records, topic) in topics {
        for record in records {
            let next = done.get(&(topic.clone(), record.partition)).copied().unwrap_or(0);
            if record.offset >= next {
                continue;
            }
            let subject = load.of_record(record);
            let sample = subject.map(|number| &load.subjects[number]);
            let (origin, attempts) =
                origin(record).unwrap_or_else(|| ((record.partition.to_string(), record.offset.to_string()), 0));
            let copied = copies.get(&origin).is_some_and(|most| *most > attempts);
            if copied || sample.is_some_and(|sample| has_verdict(sample, claims)) {
                continue;
            }
            let of = sample.map_or_else(|| "a record that is none of ours".to_owned(), name);
            let what = format!(
                "{of} at {topic}/{}/{} has no verdict, and {next} is committed",
                record.partition, record.offset
            );
            passed.push(Passed { subject, what });
        }
    }
    passed
}

fn has_verdict(sample: &Sample, claims: &HashSet<String>) -> bool {
    let claimed = matches!(&sample.subject, Subject::Event(id) if claims.contains(&id.to_string()));
    claimed || sample.expected == Expected::Ignored
}

/// Where a copy came from, and how often its event had been tried.
fn origin(copy: &ReadRecord) -> Option<((String, String), u32)> {
    let header = |name: &str| copy.header(name).map(ToOwned::to_owned);
    let origin = (header("delivery-origin-partition")?, header("delivery-origin-offset")?);
    let attempts = header("delivery-attempts").and_then(|text| text.parse().ok()).unwrap_or(0);
    // A letter without a single try is a verdict all the same.
    Some((origin, attempts.max(1)))
}

#[cfg(test)]
mod tests {
    use sandbox::{provider::ProviderSettings, samples::samples};

    use super::*;

    fn record(sample: &Sample, offset: i64, headers: &[(&str, &str)]) -> ReadRecord {
        ReadRecord {
            partition: 0,
            offset,
            key: Some(sample.key.to_vec()),
            payload: sample.payload.as_ref().map(|bytes| bytes.to_vec()),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect(),
            timestamp: None,
        }
    }

    #[test]
    fn a_commit_beyond_a_record_without_a_verdict_is_found() {
        let load = Load::new(samples(10, 1, &ProviderSettings::default()));
        let sample = load.subjects.iter().find(|sample| sample.expected == Expected::Charged).expect("most are");
        let id = name(sample).replace("event ", "");
        let source = || (vec![record(sample, 7, &[])], TOPIC.to_owned());
        let committed = |next| HashMap::from([((TOPIC.to_owned(), 0), next)]);
        let claimed = HashSet::from([id]);
        let nobody = HashSet::new();
        assert_eq!(find(&load, &committed(7), &nobody, &[source()]).len(), 0, "not passed yet");
        assert_eq!(find(&load, &committed(8), &nobody, &[source()]).len(), 1);
        assert_eq!(find(&load, &committed(8), &claimed, &[source()]).len(), 0);

        let copy = |tries: &str| {
            let headers =
                [("delivery-origin-partition", "0"), ("delivery-origin-offset", "7"), ("delivery-attempts", tries)];
            vec![record(sample, 0, &headers)]
        };
        let first = (copy("1"), "first".to_owned());
        assert_eq!(find(&load, &committed(8), &nobody, &[source(), first.clone()]).len(), 0, "the copy is its verdict");
        let both = HashMap::from([((TOPIC.to_owned(), 0), 8), (("first".to_owned(), 0), 1)]);
        assert_eq!(find(&load, &both, &nobody, &[source(), first.clone()]).len(), 1, "and then the copy has none");
        let second = (copy("2"), "second".to_owned());
        assert_eq!(find(&load, &both, &nobody, &[source(), first, second]).len(), 0);
    }
}
