//! The kernel's time and tasks on the tokio runtime. Nothing else: no delivery rule, no policy about what a panic
//! or a task that does not end means.

mod runtime;

pub use runtime::{StillRunning, TokioRuntime};
