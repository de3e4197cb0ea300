//! The contract that every store keeps, on the real server.

use std::time::Duration;

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::EventId;
use core_delivery::testing::{expiry_contract, store_contract};

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_contract() {
    let world = World::new().await;
    tokio::time::timeout(Duration::from_secs(60), store_contract(&world.store)).await.expect("nothing hangs");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_contract_about_floors() {
    let world = World::new().await;
    let raise = async |group: &ConsumerGroup, floor: EventId| {
        let set = sqlx::query("insert into claim_floor (consumer_group, floor) values ($1, $2)");
        set.bind(group.as_str()).bind(floor.as_uuid()).execute(&world.maintenance).await.expect("a floor");
    };
    tokio::time::timeout(Duration::from_secs(60), expiry_contract(&world.store, raise)).await.expect("nothing hangs");
}
