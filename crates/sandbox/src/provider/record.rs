//! What the provider was asked and what it did, as data. No lock and no HTTP.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// The provider's name of it, unique.
    pub id: Arc<str>,
    /// The key it was asked with.
    pub idempotency_key: Arc<str>,
    /// The order.
    pub order_id: Arc<str>,
    /// Who pays; empty if the caller did not say.
    pub customer_id: Arc<str>,
    /// In minor units.
    pub amount: i64,
    /// As the caller wrote it.
    pub currency: Arc<str>,
    /// Whether the money moved.
    pub status: ChargeStatus,
}

/// Whether the money moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChargeStatus {
    /// It did.
    Succeeded,
    /// Not yet: the call is in flight.
    Pending,
    /// It was declined, and never will.
    Failed,
}

/// What was asked with one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRecord {
    /// How many calls carried it.
    pub calls: u64,
    /// The distinct bodies, in the order in which they came.
    pub bodies: Vec<Bytes>,
}

/// A copy of the record, for tests.
#[derive(Debug, Clone, Default)]
pub struct ProviderRecord {
    /// The answered charges, succeeded and failed, in order.
    pub charges: Vec<Charge>,
    /// Every key that was ever sent, answered or not.
    pub keys: HashMap<Arc<str>, KeyRecord>,
    /// The counts.
    pub summary: ProviderSummary,
}

impl ProviderRecord {
    /// The charges that moved money.
    pub fn succeeded(&self) -> impl Iterator<Item = &Charge> {
        self.charges.iter().filter(|charge| charge.status == ChargeStatus::Succeeded)
    }

    /// The charges that moved money for an order: more than one is a customer who paid too often.
    pub fn succeeded_of_order<'a>(&'a self, order_id: &'a str) -> impl Iterator<Item = &'a Charge> {
        self.succeeded().filter(move |charge| &*charge.order_id == order_id)
    }

    /// The answered charge of a key.
    pub fn charge_of_key(&self, idempotency_key: &str) -> Option<&Charge> {
        self.charges.iter().find(|charge| &*charge.idempotency_key == idempotency_key)
    }

    /// The keys that came with more than one body, sorted. Must be empty (D-10).
    pub fn keys_with_several_bodies(&self) -> Vec<&str> {
        self.keys
            .iter()
            .filter(|(_, key)| key.bodies.len() > 1)
            .map(|(key, _)| &**key)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The orders that were charged more than once, sorted. Must be empty.
    pub fn orders_charged_twice(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.succeeded()
            .map(|charge| &*charge.order_id)
            .filter(|order| !seen.insert(*order))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

/// The counts, as `GET /charges/summary` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ProviderSummary {
    /// Charges that moved money.
    pub charges: u64,
    /// Charges that were declined.
    pub declined: u64,
    /// Keys that were ever sent.
    pub distinct_keys: u64,
    /// Orders for which money moved. Fewer than `charges`: an order was charged twice.
    pub distinct_orders: u64,
    /// What moved, in minor units.
    pub amount_by_currency: BTreeMap<Arc<str>, u64>,
    /// Calls that carried a key.
    pub calls: u64,
    /// Calls that were answered from an earlier one.
    pub replays: u64,
    /// 409: calls whose key was in flight.
    pub conflicts: u64,
    /// 422: calls whose key was used with another body.
    pub key_reuses: u64,
    /// 400: calls without a key or with a body that says nothing.
    pub invalid: u64,
    /// 401.
    pub unauthorized: u64,
    /// The injected faults.
    pub faults: BTreeMap<&'static str, u64>,
}
