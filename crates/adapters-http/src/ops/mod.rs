//! The operations endpoints: `GET /live`, `GET /ready`, `GET /metrics`. They only show what others know: no check
//! of a dependency, no metric and no switch of the service may live here. They need no token.

mod readiness;
mod server;

pub use readiness::{MetricsText, ReadinessSource, router};
pub use server::serve;
