//! Ports for servers that must come back on the same port; a listener that stays open takes port 0 instead.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

/// Below the range that Linux and macOS give to outgoing connections. From that range a client that knocks at the
/// closed port during an outage can be given the very port it knocks at: it connects to itself, and the server
/// cannot bind when it returns.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Ports tried before giving up.
const ATTEMPTS: usize = 100;

/// A port of 127.0.0.1 that was free a moment ago. Another process may take it first: the caller tries again.
///
/// # Errors
/// When none of 100 ports was free (`AddrInUse`).
pub fn free_port() -> io::Result<u16> {
    for _ in 0..ATTEMPTS {
        let port = rand::random_range(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let why = format!("found no free port of 127.0.0.1 in {RANGE:?} after {ATTEMPTS} attempts");
    Err(io::Error::new(io::ErrorKind::AddrInUse, why))
}
