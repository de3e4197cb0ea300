//! The check put together: everything is asked, whatever another answered.

use adapters_http::payment::HttpPaymentGateway;
use adapters_kafka::LaneFacts;
use anyhow::anyhow;

use super::super::compose::{Desk, states};
use super::super::positions::importable;
use super::super::table::show;
use super::{Item, Verdict, kafka, postgres, provider, to_json, to_text, verdict};
use crate::cli::Failure;
use crate::compose::{open_database, payment_failure, payment_settings};

/// Checks everything and shows it.
pub async fn run(desk: &Desk, json: bool) -> Result<(), Failure> {
    let (settings, config) = (&desk.settings, &desk.settings.config);
    HttpPaymentGateway::new(payment_settings(settings)).map_err(payment_failure)?;
    let mut items = vec![Item::fine("configuration", "complete, and it fits together")];
    items.extend(postgres::check(&settings.database).await);
    let plan = desk.plan();
    let checked = kafka::check(&desk.kafka, &desk.topology, &plan, config.kafka_create_topics).await;
    items.extend(checked.items);
    if !checked.lanes.is_empty() {
        items.extend(check_starts(desk, checked.lanes).await);
    }
    let looks_up = payment_settings(settings).look_up;
    items.push(provider::check(desk.questions(), looks_up).await);
    show(&if json { format!("{:#}\n", to_json(&items)) } else { to_text(&items) });
    match verdict(&items) {
        Verdict::Clean => Ok(()),
        Verdict::Findings(count) => Err(Failure::Finding(anyhow!("{count} findings"))),
        Verdict::Unreachable(count) => Err(Failure::Dependency(anyhow!("{count} dependencies were not reached"))),
    }
}

/// Whether every lane would start. What the database does not tell has been told by its own check.
async fn check_starts(desk: &Desk, lanes: Vec<LaneFacts>) -> Option<Item> {
    let (_, maintenance) = open_database(&desk.settings.database).await.ok()?;
    let stored = desk.stored(&maintenance).await.ok()?;
    let states = states(lanes, stored);
    let refused: Vec<String> = importable(&states).iter().map(|(state, _)| state.lane.to_string()).collect();
    if refused.is_empty() {
        return Some(Item::fine("positions", format!("{} partitions know where to start", states.len())));
    }
    let what = format!("Kafka holds offsets and the database no positions for {}", refused.join(", "));
    let fix = "take them over with `app-billing positions import`, after `claims import`, or name them with \
               `positions set`";
    Some(Item::finding("positions", what, fix))
}
