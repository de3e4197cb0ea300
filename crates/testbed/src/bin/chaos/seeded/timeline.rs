//! All that is known about one subject, in the order of its places: where it was delivered, its copies, its claim, its
//! ledger row, the provider's entries, and what the processes logged about it.

use std::{fs, path::Path};

use anyhow::Result;
use sandbox::samples::Subject;
use testbed::clients::{Books, ReadRecord};

use super::{
    load::{Load, name},
    world::{TOPIC, World, retry_topics},
};

/// Lines of the logs that are shown.
const LOG_LINES: usize = 40;
/// Characters of such a line.
const LOG_WIDTH: usize = 400;

/// The topics' records, read once for all timelines.
pub(super) struct Topics(Vec<(String, Vec<ReadRecord>)>);

impl Topics {
    pub(super) async fn read(world: &World) -> Result<Self> {
        let mut topics = Vec::new();
        for topic in std::iter::once(TOPIC.to_owned()).chain(retry_topics()) {
            topics.push((topic.clone(), world.kafka.read_all(&topic).await?));
        }
        Ok(Self(topics))
    }

    /// The records of the source.
    pub(super) fn source(&self) -> &[ReadRecord] {
        &self.0[0].1
    }

    /// How many records each retry tier holds.
    pub(super) fn tiers(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0[1..].iter().map(|(topic, records)| (topic.rsplit('.').next().unwrap_or(topic), records.len()))
    }
}

/// The lines of one timeline.
pub(super) fn of(subject: usize, load: &Load, topics: &Topics, books: &Books, logs: &Path) -> Result<Vec<String>> {
    let sample = &load.subjects[subject];
    let mut lines = vec![format!("{} (key {}), expected {:?}", name(sample), show(&sample.key), sample.expected)];
    let letters = ("dead letter".to_owned(), books.dead_letters.clone());
    for (topic, records) in topics.0.iter().chain([&letters]) {
        for record in records.iter().filter(|record| load.of_record(record) == Some(subject)) {
            let headers: Vec<_> = record.headers.iter().map(|(key, value)| format!("{key}={}", show(value))).collect();
            let time = record.timestamp.unwrap_or_default();
            lines.push(format!("  {topic}/{}/{} at {time}: {}", record.partition, record.offset, headers.join(", ")));
        }
    }
    let order = String::from_utf8_lossy(&sample.key);
    let charges = books.provider.iter().filter(|charge| charge.order_id == order);
    let rows = books.ledger.iter().filter(|row| row.order_id == order);
    lines.extend(charges.map(|charge| format!("  provider: {charge:?}")));
    lines.extend(rows.map(|row| format!("  ledger: {row:?}")));
    let Subject::Event(id) = sample.subject else { return Ok(lines) };
    let claimed = books.claims.contains(&id.as_uuid());
    lines.push(format!("  claim: {}", if claimed { "there" } else { "none" }));
    lines.extend(logged(&id.to_string(), logs)?);
    Ok(lines)
}

/// What the processes logged with this text, in the order of time.
fn logged(text: &str, logs: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in fs::read_dir(logs)? {
        let path = file?.path();
        let process = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let log = fs::read_to_string(&path)?;
        let lines = log.lines().filter(|line| line.contains(text));
        // A line of JSON begins with its time.
        found.extend(lines.map(|line| {
            let line: String = line.chars().take(LOG_WIDTH).collect();
            (line, process.clone())
        }));
    }
    found.sort();
    Ok(found.into_iter().take(LOG_LINES).map(|(line, process)| format!("  {process}: {line}")).collect())
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
