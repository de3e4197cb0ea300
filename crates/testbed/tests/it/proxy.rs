//! Each mode of the proxy, against a server that echoes; no real component takes part.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use testbed::{Loss, Mode, Proxy, wait_until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

/// Long enough for any byte on this machine to arrive.
const LIMIT: Duration = Duration::from_secs(5);
/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(200);

async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = client.split();
                // A reset client is part of these tests.
                drop(copy(&mut from, &mut to).await);
            });
        }
    });
    address
}

async fn proxy_and_client() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(echo_server().await).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&mut client, b"hello").await, b"hello");
    (proxy, client)
}

async fn ask(client: &mut TcpStream, question: &[u8]) -> Vec<u8> {
    client.write_all(question).await.unwrap();
    answer(client, question.len()).await
}

async fn answer(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut answer = vec![0; length];
    timeout(LIMIT, client.read_exact(&mut answer)).await.unwrap().unwrap();
    answer
}

async fn hears_nothing(client: &mut TcpStream) -> bool {
    timeout(SILENCE, client.read_u8()).await.is_err()
}

async fn is_reset(client: &mut TcpStream) -> bool {
    let read = timeout(LIMIT, client.read_u8()).await.unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn an_end_of_stream_passes_and_the_reply_still_arrives() {
    let (_proxy, mut client) = proxy_and_client().await;
    client.write_all(b"bye").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(LIMIT, client.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"bye");
}

#[tokio::test]
async fn a_blackhole_holds_what_is_sent_until_it_ends() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.set(Mode::Blackhole).await.unwrap();
    client.write_all(b"held").await.unwrap();
    let mut late = TcpStream::connect(proxy.addr()).await.unwrap();
    late.write_all(b"late").await.unwrap();
    assert!(hears_nothing(&mut client).await);
    assert!(hears_nothing(&mut late).await);

    proxy.set(Mode::Pass).await.unwrap();
    assert_eq!(answer(&mut client, 4).await, b"held");
    assert_eq!(answer(&mut late, 4).await, b"late");
}

#[tokio::test]
async fn a_reset_ends_open_and_new_connections() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.set(Mode::Reset).await.unwrap();
    assert!(is_reset(&mut client).await);
    let mut fresh = TcpStream::connect(proxy.addr()).await.unwrap();
    assert!(is_reset(&mut fresh).await);

    proxy.set(Mode::Pass).await.unwrap();
    let mut fresh = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&mut fresh, b"again").await, b"again");
}

#[tokio::test]
async fn a_reset_reaches_the_server_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    assert_eq!(answer(&mut server, 1).await, b"x");
    proxy.set(Mode::Reset).await.unwrap();
    assert!(is_reset(&mut server).await);
}

#[tokio::test]
async fn a_refusal_is_for_new_connections_only() {
    let (proxy, mut client) = proxy_and_client().await;
    proxy.set(Mode::Refuse).await.unwrap();
    let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut client, b"still").await, b"still");

    proxy.set(Mode::Pass).await.unwrap();
    let mut fresh = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&mut fresh, b"again").await, b"again");
}

#[tokio::test]
async fn a_request_arrives_though_its_reply_is_swallowed_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let (arrived, mut arrivals) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            let (mut server, _) = listener.accept().await.unwrap();
            let arrived = arrived.clone();
            tokio::spawn(async move {
                while let Ok(byte) = server.read_u8().await {
                    server.write_u8(byte).await.unwrap();
                    arrived.send(byte).await.unwrap();
                }
            });
        }
    });
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    proxy.set(Mode::DropReplies).await.unwrap();
    client.write_u8(1).await.unwrap();
    assert_eq!(timeout(LIMIT, arrivals.recv()).await.unwrap(), Some(1));
    assert!(hears_nothing(&mut client).await);

    proxy.set(Mode::Pass).await.unwrap();
    client.write_u8(2).await.unwrap();
    assert_eq!(timeout(LIMIT, arrivals.recv()).await.unwrap(), Some(2));
    assert!(hears_nothing(&mut client).await, "a stream with a hole must stay mute");
    let mut fresh = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&mut fresh, &[3]).await, [3]);
}

/// A server that says what it has heard, and answers each byte.
async fn listening_server() -> (SocketAddr, mpsc::Receiver<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hears) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut server, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                while let Ok(byte) = server.read_u8().await {
                    heard.send(byte).await.unwrap();
                    // A reset client is part of these tests.
                    drop(server.write_u8(byte).await);
                }
            });
        }
    });
    (address, hears)
}

async fn heard(hears: &mut mpsc::Receiver<u8>, count: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    for _ in 0..count {
        heard.push(timeout(LIMIT, hears.recv()).await.unwrap().unwrap());
    }
    heard
}

#[tokio::test]
async fn a_reply_that_is_lost_is_that_of_the_one_request() {
    let (address, mut hears) = listening_server().await;
    let proxy = Proxy::start(address).await.unwrap();
    let (mut other, mut client) =
        (TcpStream::connect(proxy.addr()).await.unwrap(), TcpStream::connect(proxy.addr()).await.unwrap());
    proxy.set_tripwire(*b"commit", Loss::Reply);
    assert_eq!(ask(&mut client, b"comma").await, b"comma");
    assert_eq!(proxy.trips(), 0);
    client.write_all(b"<commit>").await.unwrap();
    assert!(is_reset(&mut client).await);
    assert_eq!(heard(&mut hears, 13).await, b"comma<commit>", "the server has it");
    assert_eq!(ask(&mut other, b"commit").await, b"commit", "it is met once, by one connection");
    assert_eq!(proxy.trips(), 1);
}

#[tokio::test]
async fn a_request_that_is_lost_never_arrives() {
    let (address, mut hears) = listening_server().await;
    let proxy = Proxy::start(address).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    proxy.set_tripwire(*b"commit", Loss::Request);
    client.write_all(b"commit").await.unwrap();
    assert!(is_reset(&mut client).await);
    let mut fresh = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(ask(&mut fresh, b"x").await, b"x");
    assert_eq!(heard(&mut hears, 1).await, b"x");
}

#[tokio::test]
async fn a_connection_that_is_silenced_stays_open_and_mute() {
    let (address, mut hears) = listening_server().await;
    let proxy = Proxy::start(address).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    proxy.set_tripwire(*b"commit", Loss::Silence);
    client.write_all(b"commit").await.unwrap();
    assert!(hears_nothing(&mut client).await);
    client.write_all(b"?").await.unwrap();
    assert_eq!(heard(&mut hears, 7).await, b"commit?");
    assert!(hears_nothing(&mut client).await);
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections() {
    let (proxy, mut client) = proxy_and_client().await;
    let address = proxy.addr();
    drop(proxy);
    let read = timeout(LIMIT, client.read_u8()).await.unwrap();
    assert!(read.is_err());
    wait_until("the port to be closed", LIMIT, async || TcpStream::connect(address).await.is_err()).await.unwrap();
}
