//! Serves a router with limits: on connections, on the time a request may take to arrive, and on the time the end
//! may take. What is served is not known here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service;

/// How many connections there may be at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// How long the head of a request may take, counted from the end of the one before: the limit on idle and on
/// dawdling connections. Longer than the usual pause between two scrapes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// How long requests that are being answered may take after `shutdown`.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait after a failed accept; it fails at once while there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the router until `shutdown` completes, then lets the running requests end, at most for 2 s. Not cancel
/// safe: dropping it breaks the connections.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, permit) = accept(&listener, &permits) => {
                let connection = serve_connection(stream, router.clone(), stopped.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop((listener, stop));
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections are closed in the middle of a request");
        connections.shutdown().await;
    }
}

/// The next connection and the right to serve it. Cancel safe: a connection is only taken with a permit in hand.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, tokio::sync::OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                tracing::warn!(%error, "a connection to the operations endpoints cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, router: Router, mut stop: watch::Receiver<()>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move { router.call(request).await }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let mut connection = server.serve_connection(TokioIo::new(stream), service);
    let served = tokio::select! {
        served = &mut connection => served,
        _ = stop.changed() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the operations endpoints ended early");
    }
}
