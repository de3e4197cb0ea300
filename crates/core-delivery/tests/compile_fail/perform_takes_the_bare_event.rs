//! A handler whose `perform` takes the event without its proof.

use async_trait::async_trait;
use core_delivery::claim::Claimed;
use core_delivery::event::{Event, EventId};
use core_delivery::ports::{EventHandler, HandlerError, StoreError};

struct Paid;

impl Event for Paid {
    fn id(&self) -> EventId {
        EventId::generate()
    }
    fn key(&self) -> &str {
        "k"
    }
}

struct Charge;

#[async_trait]
impl<U: Send> EventHandler<Paid, U> for Charge {
    type Receipt = ();
    async fn perform(&self, _event: &Paid) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn record(&self, _unit: &mut U, _done: &[(Claimed<Paid>, ())]) -> Result<(), StoreError> {
        Ok(())
    }
}

fn main() {}
