//! The memory store keeps the contract that it stands in for.

use core_delivery::testing::{MemoryStore, store_contract};

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    store_contract(&MemoryStore::default()).await;
}
