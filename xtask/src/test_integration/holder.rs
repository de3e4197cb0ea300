//! Starts a program of the testbed that holds components, and takes over what it tells.

use anyhow::{Error, Result};
use testbed::holder::Holder;

use super::components::{Components, Failure};

/// The components of a program that was started; if it could not be, that is the one failure.
pub(super) fn components(backend: &'static str, started: Result<Holder>) -> Components {
    let mut components = Components::new(backend);
    let holder = match started {
        Ok(holder) => holder,
        Err(reason) => {
            components.fail(Failure::BACKEND, reason);
            return components;
        }
    };
    for ready in holder.ready() {
        components.add(ready.component, &ready.about, ready.value.clone());
    }
    for (component, error) in holder.failures() {
        components.fail(component.name(), Error::msg(error.clone()));
    }
    components.hold(holder);
    components
}
