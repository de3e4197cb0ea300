//! What a scenario does from outside: to Kafka, to the ledger's tables, to the provider and to the service as a
//! process. No product code runs in here, so that what is checked does not check itself.

mod audit;
mod http;
mod kafka;
mod ledger;
mod orders;
mod program;
mod provider;
mod raw;
mod records;
mod service;
mod upkeep;

pub use audit::{Books, Defect, Kind, Place, audit};
pub use kafka::KafkaClient;
pub use ledger::{ChargeRow, Ledger, Position};
pub use orders::{duplicated, sample_orders};
pub use program::run_to_end;
pub use provider::{ProviderCharge, ProviderOptions, ProviderProcess, ProviderSummary};
pub use raw::RawRecord;
pub use records::ReadRecord;
pub use service::Service;
pub use upkeep::TopicSettings;
