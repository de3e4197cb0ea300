//! A world to try the service in, in this process. For trials and tests: nothing here may be needed to run against
//! a real provider.

pub mod provider;
