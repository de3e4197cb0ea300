//! The probes and the metrics, over a socket, up to the end of the server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adapters_http::ops::{ReadinessSource, router, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Reasons(Mutex<Vec<String>>);

impl ReadinessSource for Reasons {
    fn reasons(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct Operations {
    addr: std::net::SocketAddr,
    reasons: Arc<Reasons>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn start() -> Operations {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let reasons = Arc::new(Reasons(Mutex::default()));
    let router = router(Arc::clone(&reasons) as Arc<dyn ReadinessSource>, Arc::new(|| "up 1\n".to_owned()));
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(serve(listener, router, async { stopped.await.expect("the test says when") }));
    Operations { addr, reasons, stop, server }
}

impl Operations {
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn readiness_follows_its_reasons_and_liveness_does_not() {
    let operations = start().await;
    let ready = operations.ask("GET /ready").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with(r#"{"ready":true,"reasons":[]}"#), "{ready}");

    operations.reasons.0.lock().unwrap().extend(["the database is away".to_owned(), "a \"storm\"".to_owned()]);
    let ready = operations.ask("GET /ready").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("content-type: application/json"), "{ready}");
    assert!(ready.ends_with(r#"{"ready":false,"reasons":["the database is away","a \"storm\""]}"#), "{ready}");
    assert!(operations.ask("GET /live").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn metrics_are_plain_text_and_nothing_else_is_served() {
    let operations = start().await;
    let metrics = operations.ask("GET /metrics").await;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.ends_with("\r\n\r\nup 1\n"), "{metrics}");
    assert!(operations.ask("POST /ready").await.starts_with("HTTP/1.1 405"));
    assert!(operations.ask("GET /").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn the_end_waits_for_no_idle_and_no_dawdling_connection() {
    let operations = start().await;
    let mut idle = TcpStream::connect(operations.addr).await.unwrap();
    idle.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    idle.read_u8().await.expect("it was accepted and answered");
    let mut dawdling = TcpStream::connect(operations.addr).await.unwrap();
    dawdling.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\nGET /li").await.unwrap();
    dawdling.read_u8().await.expect("it was accepted and answered");

    let started = Instant::now();
    operations.stop.send(()).unwrap();
    operations.server.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    TcpStream::connect(operations.addr).await.expect_err("nobody listens");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.expect("closed in good order");
}
