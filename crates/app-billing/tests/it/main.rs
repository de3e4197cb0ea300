//! The service as its users run it: the real binary on a real Kafka and a real PostgreSQL, with a provider whose
//! record the tests can read. Nothing here looks inside the process.

mod counting;
mod delivery;
mod embedded;
mod expired_records;
mod failures;
mod groups;
mod ledger;
mod lost_answers;
mod old_events;
mod operators;
mod outages;
mod payloads;
mod stops;
mod tombstones;
mod world;
