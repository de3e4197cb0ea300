//! A handler that takes the bare event is no handler, and the message says what to do.

use async_trait::async_trait;
use core_delivery::event::{Event, EventId};
use core_delivery::ports::{EventHandler, HandlerError};

struct Paid;

impl Event for Paid {
    fn id(&self) -> EventId {
        EventId::generate()
    }
    fn key(&self) -> &str {
        "k"
    }
}

struct ChargeWithoutClaim;

#[async_trait]
trait BareHandler {
    async fn perform(&self, event: &Paid) -> Result<(), HandlerError>;
}

#[async_trait]
impl BareHandler for ChargeWithoutClaim {
    async fn perform(&self, _event: &Paid) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn consume<U: Send>(_handler: impl EventHandler<Paid, U>) {}

fn main() {
    consume::<()>(ChargeWithoutClaim);
}
