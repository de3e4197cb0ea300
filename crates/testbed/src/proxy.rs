//! A TCP proxy whose faults are switched while connections are open; it knows no protocol above TCP.

mod tripwire;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::port::free_port;
pub use tripwire::Loss;
use tripwire::Tripwire;

/// How long a switch may take to reach the listener.
const SWITCH: Duration = Duration::from_secs(5);

/// What the proxy does with connections and bytes. A switch also applies to the connections that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// New connections are accepted, and nothing passes either way, not even an end of connection. What is held
    /// passes when the mode is `Pass` again.
    Blackhole,
    /// Every connection, open or new, is reset on both sides (RST).
    Reset,
    /// New connections are refused (nothing listens); those that are open go on.
    Refuse,
    /// Bytes from the client reach the server, its replies are swallowed: what is asked happens, and the client never
    /// learns it. A connection that has lost a reply stays mute in every later mode, for TCP knows no hole in a stream.
    DropReplies,
}

/// A proxy on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    applied: watch::Receiver<Mode>,
    tripwire: Arc<Tripwire>,
    upstream: watch::Sender<SocketAddr>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on 127.0.0.1 and connects each client to `upstream`, in mode [`Mode::Pass`].
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        let port = free_port()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let (mode, switched) = watch::channel(Mode::Pass);
        let (confirm, applied) = watch::channel(Mode::Pass);
        let tripwire = Arc::new(Tripwire::default());
        let (upstream, leads_to) = watch::channel(upstream);
        let accepting = tokio::spawn(accept(listener, address, leads_to, Arc::clone(&tripwire), switched, confirm));
        Ok(Self { address, mode, applied, tripwire, upstream, accepting })
    }

    /// The address to connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Switches the mode; on return the listener is in it, and open connections follow at their next byte (at once
    /// for [`Mode::Reset`]).
    ///
    /// # Errors
    /// When the port could not be opened again after [`Mode::Refuse`].
    pub async fn set(&self, mode: Mode) -> Result<()> {
        self.mode.send_replace(mode);
        let mut applied = self.applied.clone();
        timeout(SWITCH, applied.wait_for(|now| *now == mode))
            .await
            .with_context(|| format!("the proxy did not switch to {mode:?} in {SWITCH:?}"))?
            .with_context(|| format!("the proxy cannot listen on {} again", self.address))?;
        Ok(())
    }

    /// Connects the clients that come from now on to another server; those that are connected stay where they are.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.upstream.send_replace(upstream);
    }

    /// The next connection on which a client sends these bytes loses what `loss` says, and no other one does. It
    /// replaces what was set before and has not been met.
    pub fn set_tripwire(&self, bytes: impl Into<Vec<u8>>, loss: Loss) {
        self.tripwire.set(bytes.into(), loss);
    }

    /// How many tripwires were met.
    #[must_use]
    pub fn trips(&self) -> usize {
        self.tripwire.trips()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections are in a set inside of that task, and end with it.
        self.accepting.abort();
    }
}

/// Accepts until the proxy is dropped; ends early only if the port cannot be bound again.
async fn accept(
    listener: TcpListener,
    address: SocketAddr,
    upstream: watch::Receiver<SocketAddr>,
    tripwire: Arc<Tripwire>,
    mut mode: watch::Receiver<Mode>,
    confirm: watch::Sender<Mode>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let now = *mode.borrow_and_update();
        if now == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            let Ok(again) = TcpListener::bind(address).await else { return };
            listener = Some(again);
        }
        confirm.send_replace(now);
        let next_client = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = mode.changed() => if changed.is_err() { return },
            accepted = next_client => if let Ok((client, _)) = accepted {
                connections.spawn(carry(client, *upstream.borrow(), Arc::clone(&tripwire), mode.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until both sides have ended it or it is reset. An error of a side is the end of the
/// connection, which the other side sees.
async fn carry(mut client: TcpStream, upstream: SocketAddr, tripwire: Arc<Tripwire>, mut mode: watch::Receiver<Mode>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        reset(&client);
        return;
    };
    let (requests_mode, replies_mode) = (mode.clone(), mode.clone());
    let loss = OnceLock::new();
    let was_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both_ways = async {
            tokio::try_join!(
                pump(from_client, to_server, requests_mode, Direction::Request(&tripwire), &loss),
                pump(from_server, to_client, replies_mode, Direction::Reply, &loss),
            )
        };
        tokio::select! {
            _ = mode.wait_for(|now| *now == Mode::Reset) => true,
            ended = both_ways => ended.is_err(),
        }
    };
    if was_reset {
        reset(&client);
        reset(&server);
    }
}

#[derive(Clone, Copy)]
enum Direction<'t> {
    Request(&'t Tripwire),
    Reply,
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut mode: watch::Receiver<Mode>,
    direction: Direction<'_>,
    loss: &OnceLock<Loss>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut is_mute = false;
    loop {
        let read = from.read(&mut buffer).await;
        let now = *mode.wait_for(|now| *now != Mode::Blackhole).await.map_err(|_| io::ErrorKind::ConnectionAborted)?;
        let length = read?;
        match direction {
            Direction::Request(tripwire) => {
                // Known before the request is passed on, so that no reply to it can be quicker.
                if let Some(met) = tripwire.met_by(&buffer[..length])
                    && loss.set(met).is_ok()
                    && met == Loss::Request
                {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
            }
            Direction::Reply if length > 0 => match loss.get() {
                Some(Loss::Reply) => return Err(io::ErrorKind::ConnectionReset.into()),
                met => is_mute |= met == Some(&Loss::Silence) || now == Mode::DropReplies,
            },
            Direction::Reply => {}
        }
        match (length, is_mute) {
            (0, true) => return Ok(()),
            (0, false) => return to.shutdown().await,
            (_, true) => {}
            (_, false) => to.write_all(&buffer[..length]).await?,
        }
    }
}

/// Makes the drop of this socket send RST instead of FIN. It fails only on a socket that is already gone.
fn reset(socket: &TcpStream) {
    if let Err(error) = socket.set_zero_linger() {
        eprintln!("the proxy could not arm a reset: {error}");
    }
}
