//! Claims of an earlier table: brought over once, whatever is run how often.

use std::ops::ControlFlow;

use core_delivery::claim::Claim::{AlreadyProcessed, Fresh};
use core_delivery::claim::ConsumerGroup;
use core_delivery::event::InvalidEventId;
use core_delivery::ports::StoreError;
use infra_postgres::{ImportedClaims, RefusedId, import_claims};

use crate::world::*;

const PLAIN: &str = "create table \"Old claims\" (event_id uuid, consumer_group text, processed_at timestamptz, \
                     primary key (event_id, consumer_group))";

async fn imported(world: &World, batch: u32) -> ImportedClaims {
    let group = ConsumerGroup::new(GROUP);
    let goes_on = |_: &ImportedClaims| ControlFlow::Continue(());
    import_claims(&world.maintenance, "\"Old claims\"", &group, batch, goes_on).await.expect("imported")
}

async fn insert(world: &World, event: impl std::fmt::Display, group: &str, at: &str) {
    world.run(format!("insert into \"Old claims\" values ('{event}', '{group}', {at})")).await;
}

#[tokio::test]
async fn the_claims_of_a_group_are_brought_over_with_their_time() {
    let world = World::new().await;
    world.run(PLAIN).await;
    let mut keys: Vec<_> = [-300, -299, -5, 0].map(key_in_days).to_vec();
    keys.extend(self::keys(7));
    keys.sort();
    for key in &keys {
        insert(&world, key.event_id(), GROUP, "now() - interval '5 days'").await;
    }
    insert(&world, key().event_id(), "analytics", "now()").await;
    let expected = ImportedClaims { read: 11, imported: 11, ..ImportedClaims::default() };
    assert_eq!(imported(&world, 3).await, expected);
    assert_eq!(world.claimed(&keys).await, [AlreadyProcessed; 11]);
    let kept: i64 =
        sqlx::query_scalar("select count(*) from processed_event where processed_at < now() - interval '4 days'")
            .fetch_one(&world.maintenance)
            .await
            .expect("count");
    assert_eq!((kept, world.stored().await), (11, 11));
    // Again: nothing is new, and what came since is.
    insert(&world, key_in_days(-1).event_id(), GROUP, "null").await;
    let expected = ImportedClaims { read: 12, imported: 1, present: 11, ..ImportedClaims::default() };
    assert_eq!(imported(&world, 100).await, expected);
}

#[tokio::test]
async fn ids_that_are_no_event_ids_are_counted_and_named() {
    let world = World::new().await;
    world.run(PLAIN).await;
    let nil = "00000000-0000-0000-0000-000000000000";
    let max = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    let four = "919108f7-52d1-4320-9bac-f847db4148a8";
    for id in [nil, max, four, &key().event_id().to_string()] {
        insert(&world, id, GROUP, "now()").await;
    }
    let done = imported(&world, 1).await;
    assert_eq!((done.read, done.imported, done.refused), (4, 1, 3));
    let reasons = [(nil, InvalidEventId::Nil), (four, InvalidEventId::Version(4)), (max, InvalidEventId::Max)];
    let named = reasons.map(|(id, reason)| RefusedId { id: id.parse().expect("a UUID"), reason });
    assert_eq!(done.named, named);
    world
        .run(format!(
            "insert into \"Old claims\" select gen_random_uuid(), '{GROUP}', now() from generate_series(1, 200)"
        ))
        .await;
    let done = imported(&world, 50).await;
    assert_eq!((done.refused, done.named.len()), (203, ImportedClaims::NAMED));
}

#[tokio::test]
async fn a_source_without_key_and_in_another_schema_is_taken() {
    let world = World::new().await;
    world
        .run(
            "create schema past; create table past.done (event_id uuid, consumer_group text, processed_at timestamptz)",
        )
        .await;
    let key = key();
    for _ in 0..3 {
        world.run(format!("insert into past.done values ('{}', '{GROUP}', now())", key.event_id())).await;
    }
    let mut steps = 0;
    let count = |_: &ImportedClaims| {
        steps += 1;
        ControlFlow::Continue(())
    };
    let group = ConsumerGroup::new(GROUP);
    let done = import_claims(&world.maintenance, "past.done", &group, 1, count).await.expect("imported");
    assert_eq!((done.read, done.imported, steps), (1, 1, 1));
    assert_eq!(world.claimed(&[key]).await, [AlreadyProcessed]);
}

#[tokio::test]
async fn an_import_can_be_ended_between_batches() {
    let world = World::new().await;
    world.run(PLAIN).await;
    let keys = keys(5);
    for key in &keys {
        insert(&world, key.event_id(), GROUP, "now()").await;
    }
    let group = ConsumerGroup::new(GROUP);
    let stop = |_: &ImportedClaims| ControlFlow::Break(());
    let done = import_claims(&world.maintenance, "\"Old claims\"", &group, 2, stop).await.expect("imported");
    assert_eq!(done.imported, 2);
    let answers = world.claimed(&keys).await;
    assert_eq!(answers, [AlreadyProcessed, AlreadyProcessed, Fresh, Fresh, Fresh]);
}

#[tokio::test]
async fn a_source_that_is_not_there_or_of_another_shape_is_an_error() {
    let world = World::new().await;
    world.run("create table other (id int)").await;
    let group = ConsumerGroup::new(GROUP);
    for (source, words) in [("nowhere", "there is no table nowhere"), ("other", "42703"), ("a; drop table x", "")] {
        let result = import_claims(&world.maintenance, source, &group, 10, |_| ControlFlow::Continue(())).await;
        match result {
            Err(StoreError::Rejected { context, .. } | StoreError::Unavailable { context, .. }) => {
                assert!(context.contains(words), "{context}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}
