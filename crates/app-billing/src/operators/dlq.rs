//! The commands on dead letters: listing them and sending them round again. It knows Kafka; who may replay at a time is
//! decided by whoever calls.

use std::collections::HashSet;
use std::sync::Arc;

use adapters_kafka::{InspectError, KafkaPublisher, KafkaSettings, read_topic};
use anyhow::{Error, anyhow};
use core_delivery::event::UnixMillis;
use core_delivery::headers::replay;
use core_delivery::ports::Publisher;
use core_delivery::record::{LaneId, Offset, OutgoingRecord, Topic};

use super::letters::{Letter, Letters, Selection, to_json, to_table};
use super::replay::{Sent, send};
use super::table::{Progress, show};
use crate::cli::Failure;

/// What a replay of an event in doubt means.
const IN_DOUBT: &str = "an earlier try ended without a known outcome, so the money may have moved already. A replay asks \
    the provider again under the same key: as long as it remembers the key (PAYMENT_KEY_LIFETIME) nobody pays twice, and \
    with PAYMENT_LOOKUP=on it is asked first. Make sure of either, or ask the provider about these orders, and then say \
    --yes";

/// Shows the letters that are meant.
pub async fn list(
    kafka: &KafkaSettings,
    letters: &Topic,
    selection: &Selection,
    limit: Option<usize>,
    json: bool,
) -> Result<(), Failure> {
    let mut chosen = read(kafka, letters).await?.selected(selection);
    if let Some(limit) = limit {
        chosen.drain(..chosen.len().saturating_sub(limit));
    }
    show(&if json { format!("{:#}\n", to_json(&chosen)) } else { to_table(&chosen) });
    Ok(())
}

/// The letters that a replay would send, once it is certain that it may.
pub async fn choose(
    kafka: &KafkaSettings,
    letters: &Topic,
    selection: &Selection,
    doubt_is_accepted: bool,
) -> Result<Vec<Letter>, Failure> {
    let chosen = read(kafka, letters).await?.selected(selection);
    let found: HashSet<_> = chosen.iter().filter_map(|letter| letter.event_id).collect();
    let absent: Vec<String> = selection.ids.iter().filter(|id| !found.contains(id)).map(ToString::to_string).collect();
    if !absent.is_empty() {
        return Err(Failure::Finding(anyhow!("no such dead letter: {}; nothing was sent", absent.join(", "))));
    }
    let doubted = chosen.iter().filter(|letter| letter.is_in_doubt()).count();
    if doubted > 0 && !doubt_is_accepted {
        let error = anyhow!("{doubted} of {} letters are in doubt: {IN_DOUBT}. Nothing was sent", chosen.len());
        return Err(Failure::Configuration(error));
    }
    Ok(chosen)
}

/// Shows what a replay would send.
pub fn show_plan(chosen: &[Letter], tier: &Topic) {
    show(&to_table(chosen));
    let doubted = chosen.iter().filter(|letter| letter.is_in_doubt()).count();
    let doubt = if doubted > 0 { format!(" ({doubted} of them in doubt: needs --yes)") } else { String::new() };
    show(&format!("{} letters would go to {tier}{doubt}; nothing was sent\n", chosen.len()));
}

/// Sends the letters to the tier and shows how many were acknowledged.
pub async fn resend(
    kafka: &KafkaSettings,
    letters: &Topic,
    tier: &Topic,
    chosen: &[Letter],
    now: UnixMillis,
) -> Result<(), Failure> {
    let places: HashSet<(&LaneId, Offset)> = chosen.iter().map(|letter| (&letter.lane, letter.offset)).collect();
    let mut copies: Vec<OutgoingRecord> = Vec::with_capacity(chosen.len());
    let mut progress = Progress::of("letters read again");
    let reading = read_topic(kafka, letters, |record, lane| {
        progress.step();
        if places.contains(&(&lane, record.offset)) {
            copies.push(replay(&record, &lane, tier.clone(), now));
        }
    });
    reading.await.map_err(failure)?;
    let gone = chosen.len() - copies.len();
    let publisher = KafkaPublisher::new(kafka).map_err(|error| Failure::Configuration(Error::new(error)))?;
    let sent = send(Arc::new(publisher) as Arc<dyn Publisher>, copies).await;
    let Sent { acknowledged, open, reason } = sent;
    tracing::info!(acknowledged, open, gone, tier = %tier, "dead letters replayed by an operator");
    show(&format!("{acknowledged} letters sent to {tier}\n"));
    if gone > 0 {
        show(&format!("{gone} letters have expired meanwhile\n"));
    }
    match reason {
        Some(reason) => Err(Failure::Dependency(anyhow!(
            "{open} letters were not acknowledged and may have been written or not: {reason}. Replay them again: what \
             was done meanwhile is found to be a duplicate"
        ))),
        None => Ok(()),
    }
}

async fn read(kafka: &KafkaSettings, topic: &Topic) -> Result<Letters, Failure> {
    let mut letters = Letters::default();
    let mut progress = Progress::of("letters read");
    let reading = read_topic(kafka, topic, |record, lane| {
        progress.step();
        letters.add(Letter::read(&record, &lane));
    });
    reading.await.map_err(failure)?;
    Ok(letters)
}

/// What an unanswered question of Kafka means for the exit code.
pub fn failure(error: InspectError) -> Failure {
    match error {
        InspectError::Settings(_) | InspectError::NoTopic { .. } => Failure::Configuration(Error::new(error)),
        InspectError::Unknown { .. } | InspectError::Ended { .. } => Failure::Dependency(Error::new(error)),
    }
}
