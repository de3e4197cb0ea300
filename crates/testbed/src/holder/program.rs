//! The side of the program that holds the components: when it has to let go, and how it tells what serves.

use std::{
    future::Future,
    io::{self, Read, Write},
    thread,
};

use anyhow::Result;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use super::Report;

/// Resolves at the end of the input, or at a signal that asks us to end.
///
/// # Errors
/// When the system gives no thread or no signal handler.
pub fn let_go() -> Result<impl Future<Output = ()>> {
    let (closed, end_of_input) = oneshot::channel();
    // A thread, since a read of the input cannot be cancelled and the runtime would wait for it at the end.
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // An error is an end as well.
        io::stdin().lock().read_to_end(&mut Vec::new()).ok();
        closed.send(()).ok();
    })?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = end_of_input => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Tells whoever started us, who may be gone: then there is nobody to tell.
pub fn tell(report: &Report) {
    writeln!(io::stdout(), "{}", report.to_line()).ok();
}
