//! HTTP/1.1 over kept connections, with as little of its own between as can be: what is measured is the server.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, and when its first byte and its last were there.
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    pub first_byte: Duration,
    pub whole: Duration,
}

impl Connection {
    /// To the server at `url`, `http://host:port`.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let address = url.strip_prefix("http://").context("the address is not http")?;
        let stream = TcpStream::connect(address).await.with_context(|| format!("no connection to {url}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads its whole answer.
    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<Reply> {
        self.buffer.clear();
        let started = Instant::now();
        self.stream.write_all(request).await?;
        let mut first_byte = None;
        loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server hung up");
            first_byte.get_or_insert_with(|| started.elapsed());
            if let Some((status, body)) = parse(&self.buffer)? {
                let whole = started.elapsed();
                return Ok(Reply { status, body, first_byte: first_byte.unwrap_or(whole), whole });
            }
        }
    }

    /// Like [`Connection::send`], for answers that must have a status of 2xx.
    pub async fn expect(&mut self, request: &[u8]) -> anyhow::Result<Reply> {
        let reply = self.send(request).await?;
        if !(200..300).contains(&reply.status) {
            bail!("status {}: {}", reply.status, String::from_utf8_lossy(&reply.body));
        }
        Ok(reply)
    }
}

/// Status and body, once all of it is there.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(u16, Vec<u8>)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(bytes)? else { return Ok(None) };
    let status = head.code.context("no status")?;
    let rest = bytes.get(start..).unwrap_or_default();
    let value = |name: &str| head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let body = match value("content-length") {
        Some(length) => {
            let length: usize = std::str::from_utf8(length.value)?.parse()?;
            rest.get(..length).map(<[u8]>::to_vec)
        }
        None => chunks(rest)?,
    };
    Ok(body.map(|body| (status, body)))
}

/// The chunks of a body, joined, once the last is there.
fn chunks(mut rest: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(rest).ok().context("neither a length nor chunks")?;
        let httparse::Status::Complete((start, size)) = size else { return Ok(None) };
        let end = start + usize::try_from(size)?;
        let Some(chunk) = rest.get(start..end) else { return Ok(None) };
        let Some(after) = rest.get(end + 2..) else { return Ok(None) };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk);
        rest = after;
    }
}

/// What a closed loop of callers saw.
pub struct Load {
    /// Answers per second.
    pub rate: f64,
    /// Every answer's latency, µs.
    pub latencies: Vec<f64>,
}

/// `connections` callers, each of which sends its next request when it has its answer, for as long as `span`.
pub async fn closed_loop(
    url: &str,
    request: &[u8],
    connections: usize,
    span: Duration,
) -> anyhow::Result<Load> {
    let opened = try_join_all((0..connections).map(|_| Connection::open(url))).await?;
    let started = Instant::now();
    let callers = opened.into_iter().map(|mut connection| async move {
        let mut latencies = Vec::new();
        while started.elapsed() < span {
            latencies.push(super::table::micros(connection.expect(request).await?.whole));
        }
        anyhow::Ok(latencies)
    });
    let latencies = try_join_all(callers).await?.concat();
    Ok(Load { rate: latencies.len() as f64 / started.elapsed().as_secs_f64(), latencies })
}
