//! The store against a real PostgreSQL. No test shares a database with another, and none sleeps.

mod claims;
mod connections;
mod contract;
mod deletes;
mod expiry;
mod faults;
mod floors;
mod imports;
mod migrations;
mod partitions;
mod positions;
mod units;
mod world;
