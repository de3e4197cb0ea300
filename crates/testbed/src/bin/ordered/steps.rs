//! The numbered events and how they are read; what becomes of them is the journal's.

use core_delivery::{
    event::{Event, EventId},
    ports::{DecodeError, Decoded, ErrorClass, EventDecoder},
    record::Record,
};
use serde::Deserialize;

/// One of the steps of a key.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    id: EventId,
    key: String,
    /// Its place within the key, from 1 on.
    pub(crate) number: i32,
}

impl Event for Step {
    fn id(&self) -> EventId {
        self.id
    }

    fn key(&self) -> &str {
        &self.key
    }
}

#[derive(Deserialize)]
struct Written {
    event_id: String,
    key: String,
    number: i32,
}

/// Reads the JSON of a step.
pub(crate) struct StepDecoder;

impl EventDecoder<Step> for StepDecoder {
    fn decode(&self, record: &Record) -> Decoded<Step> {
        let read = || -> Result<Step, String> {
            let json = record.payload.as_deref().ok_or("there is no payload")?;
            let written: Written = serde_json::from_slice(json).map_err(|error| error.to_string())?;
            let id = written.event_id.parse().map_err(|_| "the id is no version 7")?;
            Ok(Step { id, key: written.key, number: written.number })
        };
        match read() {
            Ok(step) => Decoded::Event(step),
            Err(reason) => Decoded::Undecodable(DecodeError { class: ErrorClass::UNDECODABLE, reason }),
        }
    }
}
