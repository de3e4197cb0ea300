//! Records without a value: ignored where that is possible, and still without one where they become dead letters.

use anyhow::{Context, Result, ensure};
use sandbox::provider::ProviderSettings;
use testbed::clients::{RawRecord, sample_orders};

use crate::operators;
use crate::world::{TIERS, World, header, verdicts};

/// A tombstone that cannot be ignored: a header of it cannot be read, so it may mean anything.
fn unreadable(payload: Option<&'static [u8]>) -> RawRecord<'static> {
    RawRecord { partition: 0, key: b"o-1", payload, header_key: b"bad\xff", header_value: b"x" }
}

/// P1: it is counted and its offset moves, at the head, in the middle and at the end of what is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_is_ignored_and_counted_and_its_offset_moves() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(4);
    let tombstone = async || world.kafka.produce_to(&world.topic, 0, Some(b"o-1"), None, &[("trace", b"1")]).await;
    tombstone().await?;
    world.send(&orders[..2]).await?;
    tombstone().await?;
    world.send(&orders[2..]).await?;
    tombstone().await?;
    let service = world.service().await?;
    world.settled(4).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(7)]);
    ensure!(verdicts(&service, "ignored_tombstone").await? == 3);
    ensure!(world.moved_nothing().await?);

    // Nothing but tombstones: no unit stores their position along with something else.
    for _ in 0..3 {
        tombstone().await?;
    }
    world.settled(4).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(10)]);
    ensure!(verdicts(&service, "ignored_tombstone").await? == 6);
    world.charged_exactly(&orders).await
}

/// P1: null stays null and empty stays empty in the dead letter, the offset moves, and the flow goes on. In a tier it
/// is the same, and a replay of the letter ends as a tombstone that can be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_that_fails_is_a_dead_letter_whose_value_is_still_null() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let orders = sample_orders(2);
    world.send(&orders[..1]).await?;
    world.kafka.produce_raw(&world.topic, unreadable(None)).await?;
    world.kafka.produce_raw(&world.topic, unreadable(Some(b""))).await?;
    world.send(&orders[1..]).await?;
    let service = world.service().await?;
    world.settled(2).await?;
    ensure!(world.kafka.committed(&world.group, &world.topic, 1).await? == [Some(4)]);
    let letters = world.dead_letters().await?;
    let values: Vec<Option<&[u8]>> = letters.iter().map(|letter| letter.payload.as_deref()).collect();
    ensure!(values == [None, Some(b"".as_slice())], "{letters:?}");
    for letter in &letters {
        ensure!(letter.key.as_deref() == Some(b"o-1".as_slice()));
        ensure!(header(letter, "delivery-error-class").as_deref() == Some("undecodable"));
    }

    let tier = world.retry_topic(TIERS[0]);
    world.kafka.produce_raw(&tier, unreadable(None)).await?;
    world.until("the third letter", async || world.dead_letters().await.is_ok_and(|all| all.len() == 3)).await?;
    let letters = world.kafka.read_all(&world.dead_letter_topic()).await?;
    let third = letters.last().context("three")?;
    ensure!(third.payload.is_none(), "{third:?}");
    world.settled(2).await?;

    operators::run(&world, &["dlq", "replay", "--all"]).await?.ended_with(0)?;
    world
        .until("the replayed tombstones", async || {
            verdicts(&service, "ignored_tombstone").await.is_ok_and(|count| count == 2)
        })
        .await?;
    world.settled(2).await?;
    world.charged_exactly(&orders).await
}
