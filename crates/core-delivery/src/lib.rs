//! The kernel: consume a topic effectively once, on any store, broker and runtime. No database, broker, web,
//! runtime or business type may ever be named here.
//!
//! Read in this order: [`event`] and [`record`] (what arrives), [`claim`] (the proof that an event was not seen
//! before), [`ports`] (what an adapter or an application supplies), [`delivery`] (the machines and the drivers
//! that turn records into verdicts).
//!
//! The promise, in one line: for every record that the stream delivers there is exactly one committed business
//! change per `(event id, consumer group)`, or a copy of the record that the broker has acknowledged, and only
//! then does the offset move.

pub mod claim;
pub mod crash;
pub mod delivery;
pub mod event;
pub mod headers;
pub mod ports;
pub mod record;
#[cfg(feature = "testing")]
pub mod testing;
