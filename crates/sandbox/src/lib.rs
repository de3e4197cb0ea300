//! A world to try the service in, in this process. For trials and tests: nothing here may be needed to run against
//! a real provider.

pub mod port;
pub mod postgres;
pub mod provider;
pub mod samples;
pub mod supervised;
pub mod wait;
