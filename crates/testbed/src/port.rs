//! Ports for servers that must come back on the same port; a listener that stays open takes port 0 instead.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Below the range that Linux and macOS give to outgoing connections. From that range a client that knocks at the
/// closed port during an outage can be given the very port it knocks at: it connects to itself, and the server
/// cannot bind when it returns.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Ports tried before giving up.
const ATTEMPTS: usize = 100;

/// A port of 127.0.0.1 that was free a moment ago. Another process may take it first: the caller tries again.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..ATTEMPTS {
        let port = rand::random_range(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("found no free port of 127.0.0.1 in {RANGE:?} after {ATTEMPTS} attempts")
}
