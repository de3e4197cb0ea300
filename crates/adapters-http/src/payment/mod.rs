//! The payment provider's API as `PaymentGateway`. What is done about an outcome is decided elsewhere: here an
//! answer only gets its class (trap 2 of the rules: 2xx is success, and every other status has a meaning of its own).
//!
//! One call to the gateway is one request at most: no redirect is followed, nothing is tried again, and the same
//! event always makes the same key and the same bytes (D-10). The one exception is the HTTP client's: a request that
//! found its pooled connection closed before a byte of it was written goes out on another connection, which the
//! provider cannot notice.

mod classify;
mod endpoint;
mod gateway;
mod look_up;
mod metrics;
mod reason;
mod retry_after;
mod secret;
mod settings;
mod wire;

pub use gateway::HttpPaymentGateway;
pub use metrics::describe_metrics;
pub use secret::Secret;
pub use settings::{PaymentConfigError, PaymentSettings};
