//! A TCP server that reads requests and does what a test says, byte by byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Answers and keeps the connection.
    Answer(String),
    /// Writes these bytes and closes the connection.
    WriteAndClose(String),
    /// Answers, then closes the connection when the next request has begun to arrive.
    AnswerAndCloseAtNext(String),
    /// Closes the connection with RST.
    Reset,
    /// Never answers.
    Silence,
}

pub(crate) struct ScriptedServer {
    pub(crate) base: String,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    /// One step for each request, in order, whatever the connection; the last one is repeated.
    pub(crate) async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let script = Script { steps, requests: Arc::clone(&requests) };
        let task = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move {
                let mut kept = Vec::new();
                while let Ok((stream, _)) = listener.accept().await {
                    *connections.lock().unwrap() += 1;
                    kept.push(tokio::spawn(script.clone().run(stream)));
                }
            }
        });
        Self { base, requests, connections, task }
    }

    /// Head and body of each request, as they arrived.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Script {
    steps: Vec<Step>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn run(self, mut stream: TcpStream) {
        while let Some(request) = read_request(&mut stream).await {
            let step = {
                let mut requests = self.requests.lock().unwrap();
                requests.push(request);
                self.steps[(requests.len() - 1).min(self.steps.len() - 1)].clone()
            };
            match step {
                Step::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                Step::WriteAndClose(answer) => return stream.write_all(answer.as_bytes()).await.unwrap(),
                Step::AnswerAndCloseAtNext(answer) => {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let mut first = [0];
                    // Unread bytes make the close an RST, as with a server whose keep-alive ended just now.
                    let _begun = stream.read(&mut first).await;
                    return;
                }
                Step::Reset => return stream.set_zero_linger().unwrap(),
                Step::Silence => tokio::time::sleep(Duration::from_secs(60)).await,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(Some(0), |length| length.parse::<usize>().ok())?;
        if body.len() >= length {
            return Some(text.into_owned());
        }
    }
}

/// An HTTP/1.1 answer with extra header lines.
pub(crate) fn answer(status: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}
