//! Nobody but the batch can make the proof of a claim.

use std::sync::Arc;

use core_delivery::claim::{Claimed, History};

fn main() {
    let _ = Claimed::new(Arc::new(17), History::default());
}
