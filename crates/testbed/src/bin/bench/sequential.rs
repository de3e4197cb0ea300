//! (s) The usual way, for orientation: one event, one transaction, one commit of its offset, then the next event.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use core_delivery::{
    claim::{Claim, ConsumerGroup, DedupKey},
    ports::{Decoded, EventDecoder, UnitOfWork, UnitOfWorkFactory},
    record::{Offset, Record},
};
use core_order::{Currency, Event, OrderConfirmed, OrderConfirmedDecoder};
use rdkafka::{
    ClientConfig, Message,
    consumer::{CommitMode, Consumer, StreamConsumer},
};
use tokio::{task::block_in_place, time::timeout};

use crate::{
    table::{self, Database},
    world::{Measured, Running, TOPIC, World},
};

const GROUP: &str = "bench-sequential";
/// How long the next record may take.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn run(world: &World, events: usize) -> Result<Measured> {
    let database = Database::prepare(&world.database("sequential").await?).await?;
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", world.brokers())
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()?;
    consumer.subscribe(&[TOPIC])?;
    let decoder = OrderConfirmedDecoder::new(Currency::EUR);
    let group = ConsumerGroup::new(GROUP);
    let mut running = None;
    for _ in 0..events {
        let message = timeout(LIMIT, consumer.recv()).await.context("no record")??;
        if running.is_none() {
            running = Some(Running::begin(world.processes)?);
        }
        let event = decode(&decoder, &message)?;
        let mut unit = database.store.begin().await?;
        let claims = unit.claim(&[DedupKey::new(event.id(), group.clone())]).await?;
        ensure!(claims == [Claim::Fresh], "an event was claimed before");
        table::insert(&mut unit, &[&event]).await?;
        unit.commit().await?;
        block_in_place(|| consumer.commit_message(&message, CommitMode::Sync))?;
    }
    let measured = running.context("there was no event")?.end(events)?;
    let expected = i64::try_from(events)?;
    let counts = database.counts().await?;
    ensure!(counts == (expected, expected), "claims and rows are {counts:?}, not {expected} each");
    block_in_place(|| drop(consumer));
    Ok(measured)
}

fn decode(decoder: &OrderConfirmedDecoder, message: &impl Message) -> Result<OrderConfirmed> {
    let record = Record {
        offset: Offset(message.offset()),
        timestamp: None,
        key: message.key().map(|key| key.to_vec().into()),
        payload: message.payload().map(|payload| payload.to_vec().into()),
        headers: Vec::new(),
        unreadable_headers: 0,
    };
    match decoder.decode(&record) {
        Decoded::Event(event) => Ok(event),
        other => anyhow::bail!("offset {} is no order: {other:?}", message.offset()),
    }
}
