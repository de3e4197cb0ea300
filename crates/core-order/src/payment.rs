//! The port of the payment provider. What a status code means is the adapter's knowledge; what is done about it
//! is the handler's.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Claimed, Effect, OrderConfirmed};

/// Charges orders.
#[async_trait]
pub trait PaymentGateway: Send + Sync + 'static {
    /// Charges a claimed order, with the event's id as the idempotency key and the same body on every try
    /// (R-KFK-IDEM-4, D-10). An order that was not claimed can not be charged: there is no proof to pass.
    async fn charge(&self, order: &Claimed<OrderConfirmed>) -> Result<ChargeReceipt, GatewayError>;

    /// Asks what the provider knows of this order's key. Moves no money, so its errors have no effect, and it is never
    /// refused as declined. A key that belongs to another charge is [`GatewayError::KeyReused`].
    async fn look_up(&self, order: &Claimed<OrderConfirmed>) -> Result<LookUp, GatewayError>;
}

/// What the provider knows of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookUp {
    /// The money moved.
    Charged(ChargeReceipt),
    /// The charge is being made.
    Pending,
    /// The charge was declined: the money did not move and will not under this key.
    Failed {
        /// What the provider said.
        reason: String,
    },
    /// The provider answered, and knows nothing of the key: no charge was ever made with it.
    NotFound,
    /// The provider offers no look-up (404, 405), or it is switched off.
    NotOffered,
}

/// The provider's confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeReceipt {
    /// The provider's name of the charge, if it told one.
    pub provider_ref: Option<String>,
}

/// Why an order was not charged, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// 408, 425, 429, 5xx, no answer, an answer that was cut: try again with the same key.
    #[error("{reason}")]
    Transient {
        /// What happened.
        reason: String,
        /// The wait that the provider asked for.
        retry_after: Option<Duration>,
        /// Whether the money may have moved all the same.
        effect: Effect,
    },
    /// 202: the provider took the charge on and has not made it yet.
    #[error("{reason}")]
    Pending {
        /// What the provider said.
        reason: String,
        /// The wait that the provider asked for.
        retry_after: Option<Duration>,
    },
    /// 409: the provider knows the key, as a charge in flight or as one already done.
    #[error("{reason}")]
    Conflict {
        /// What the provider said.
        reason: String,
    },
    /// 422, or a look-up that shows another order, amount or currency: the key was used for another charge. Never
    /// sent again under another key.
    #[error("{reason}")]
    KeyReused {
        /// What the provider said.
        reason: String,
    },
    /// Another 4xx: this order will never be charged.
    #[error("{reason}")]
    Declined {
        /// What the provider said.
        reason: String,
    },
    /// 401, 403, 3xx: the configuration is wrong, for every order alike.
    #[error("{reason}")]
    Misconfigured {
        /// What to repair.
        reason: String,
    },
}
