//! A payment provider with real `Idempotency-Key` behaviour, a record of what it was asked and injected faults.
//! Nothing of the service that it is tried with may be known here: it only speaks HTTP.
//!
//! `POST /charges` charges, `GET /charges` shows the record (`?idempotency_key=` looks one key up, if offered,
//! `?after=<n>&limit=<n>` pages), `GET /charges/summary` counts. `POST /faults` with
//! `{"kinds":["unavailable","too_many_requests","unauthorized",…],"share":0.5,"per_key":2,"slow_ms":30000}` adds faults
//! to those of the settings, until the next one; `{}` ends them.
//!
//! | call | answer |
//! |---|---|
//! | no or an empty `Idempotency-Key` | 400 |
//! | amount not an integer above 0, currency not three letters, no `order_id` | 400, not kept under the key |
//! | a key whose first call is in flight | 409 |
//! | a key that was answered, with the same bytes | the same status and body, `Idempotent-Replayed: true` |
//! | a key that was answered, with other bytes | 422 |
//! | an API key is set and the call does not carry it | 401 |
//! | `customer_id` starts with `declined`, or the key falls into `decline_share` | 402, kept under the key |
//! | a key that was answered, with the same bytes, and `conflict_when_done` is set | 409 |
//! | else | 201 `{"id":"ch_…","status":"succeeded",…}` |

mod answer;
mod connection;
mod faults;
mod ledger;
mod record;
mod routes;
mod server;
mod settings;
mod weather;

pub use faults::{FaultKind, UnknownFault, suffers};
pub use record::{Charge, ChargeStatus, KeyRecord, ProviderRecord, ProviderSummary};
pub use server::Provider;
pub use settings::{ProviderSettings, StartError};
