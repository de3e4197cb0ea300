//! One GET over HTTP/1.1, for answers that are small and servers that are ours; no other method, no TLS, no retry.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long an answer may take, its body included.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer, whatever its status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Response {
    /// The body of a 200.
    pub(super) fn ok(self) -> Result<String> {
        match self.status {
            200 => Ok(self.body),
            status => bail!("answered {status}: {}", self.body),
        }
    }
}

/// GET `path` (with its query) of `address`, which is `host:port`.
pub(super) async fn get(address: &str, path: &str) -> Result<Response> {
    exchange("GET", address, path, "").await
}

/// POST `body` to `path` of `address`.
pub(super) async fn post(address: &str, path: &str, body: &str) -> Result<Response> {
    exchange("POST", address, path, body).await
}

async fn exchange(method: &str, address: &str, path: &str, body: &str) -> Result<Response> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let what = || format!("{method} http://{address}{path}");
    let answer = timeout(LIMIT, exchange).await.with_context(what)?.with_context(what)?;
    parse(&answer).with_context(what)
}

fn parse(answer: &[u8]) -> Result<Response> {
    let text = std::str::from_utf8(answer).context("the answer is not UTF-8")?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no end of headers")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("the answer has no status")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("the answer does not say its length")?
        .1;
    if length.trim().parse() != Ok(body.len()) {
        bail!("the body has {} bytes, not the{length} announced", body.len());
    }
    Ok(Response { status: status.parse()?, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_answer_is_read() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nkafk";
        assert_eq!(parse(answer).unwrap(), Response { status: 503, body: "kafk".into() });
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nkafk").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Le").is_err());
        assert!(parse(b"").is_err());
    }
}
