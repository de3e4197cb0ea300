//! The contract that every store keeps, on the real server.

use std::time::Duration;

use core_delivery::testing::store_contract;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_contract() {
    let world = World::new().await;
    tokio::time::timeout(Duration::from_secs(60), store_contract(&world.store)).await.expect("nothing hangs");
}
