//! The memory store keeps the contract that it stands in for.

use core_delivery::testing::{MemoryStore, expiry_contract, store_contract};

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    store_contract(&MemoryStore::default()).await;
}

#[tokio::test]
async fn the_memory_store_keeps_the_contract_about_floors() {
    let store = MemoryStore::default();
    expiry_contract(&store, async |group, floor| store.raise_floor(group, floor)).await;
}
