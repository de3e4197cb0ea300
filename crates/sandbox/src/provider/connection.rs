//! The accept loop and the connections, so that a fault can break one. What an answer says is not known here.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

use super::answer::ResetConnection;

/// How long the calls in flight may take once the server was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait after a failed accept; it fails at once while there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` changes or its sender is gone, then lets the calls in flight end.
pub(super) async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let router = Arc::new(router);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve_connection(stream, Arc::clone(&router), stop.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "the provider cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve_connection(stream: TcpStream, router: Arc<Router>, mut stop: watch::Receiver<bool>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
        return;
    }
    let service = service_fn(move |request| answer(Router::clone(&router), request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let served = tokio::select! {
        served = &mut connection => served,
        _ = stop.changed() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    let Err(error) = served else { return };
    tracing::debug!(%error, "a connection ended early");
    if error.source().is_some_and(|cause| cause.is::<Reset>()) {
        // Closing a socket that lingers for no time sends RST, so the caller cannot take it for a clean end.
        let stream = connection.into_parts().io.into_inner();
        if let Err(error) = stream.set_zero_linger() {
            tracing::warn!(%error, "a connection is closed but not reset");
        }
    }
}

async fn answer(mut router: Router, request: Request<Incoming>) -> Result<Response<Body>, Reset> {
    let response = router.call(request).await.unwrap_or_else(|never| match never {});
    match response.extensions().get::<ResetConnection>() {
        Some(ResetConnection) => Err(Reset),
        None => Ok(response),
    }
}

/// Fails the service, on which hyper gives the connection up without a word to the caller.
#[derive(Debug, thiserror::Error)]
#[error("the connection is reset, as injected")]
struct Reset;
