//! What an adapter or an application supplies to the kernel. Only traits, their error types and what they pass;
//! no behaviour.

mod decoder;
mod handler;
mod lane_mark;
mod publisher;
mod runtime;
mod stream;
mod unit_of_work;

pub use decoder::{DecodeError, Decoded, EventDecoder, IgnoreReason};
pub use handler::{Admission, Effect, ErrorClass, EventHandler, HandlerError, Knowledge, Refusal};
pub use lane_mark::{LaneLog, LaneMark, MarkAnswer, Owner, Search, Standing, Suspect};
pub use publisher::{PublishError, Publisher};
pub use runtime::{Runtime, panic_text};
pub use stream::{Arrival, Progress, RecordStream, StreamControl, StreamError, StreamEvent};
pub use unit_of_work::{
    BoxError, PositionStep, StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory, error_chain,
};
