//! What metering costs: calls per second of a function that says hello, by a server that keeps usage records, by one that also
//! sends a trace of each call, and by one that does neither.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::load::closed_loop;
use crate::peers::{self, Weir};
use crate::table::{Better, Row, Table, Target, median};

const CONNECTIONS: usize = 16;
const SPAN: Duration = Duration::from_secs(2);
/// The machine is shared and the differences are small, so there are more pairs than elsewhere.
const PAIRS: usize = 4;

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    let pairs = rounds * PAIRS;
    eprintln!("metering: {CONNECTIONS} connections, {pairs} rounds of {SPAN:?} each, in turn");
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let receiver = listener.local_addr()?;
    // On a thread of its own, for as long as the process is there.
    std::thread::spawn(move || receive(listener));
    let traced = format!(
        "[otlp]\nendpoint = \"http://{receiver}\"\nprotocol = \"http\"\nmetrics = false\nlogs = false\n"
    );
    let settings = ["[metering]\nenabled = false\n", "", &traced];
    let mut servers = Vec::new();
    for settings in settings {
        let mut server = Weir::start_with(settings).await?;
        peers::deploy_hello(&mut server, "hello").await?;
        servers.push(server);
    }
    let mut rates: [Vec<f64>; 3] = Default::default();
    // The first round wakes everyone, and does not count.
    for round in 0..=pairs {
        for (server, rates) in servers.iter().zip(&mut rates) {
            let load = closed_loop(&server.process.url, &peers::hello("hello"), CONNECTIONS, SPAN).await?;
            if round > 0 {
                rates.push(load.rate);
            }
        }
    }
    drop(servers);
    let [off, on, traced] = rates;
    for (what, ours, target) in [
        ("with usage records", on, 0.98),
        ("with usage records and a trace of each call over OTLP", traced, 0.95),
    ] {
        // Round by round, so that what the machine did meanwhile is the same for both.
        let ratios: Vec<f64> = ours.iter().zip(&off).map(|(ours, off)| ours / off).collect();
        let twins = median(&off);
        table.push(Row {
            bench: "metering",
            what: what.to_owned(),
            unit: "calls/s",
            better: Better::Higher,
            weir: twins * median(&ratios),
            twin: "metering off".to_owned(),
            twins,
            target: Some(Target::Times(target)),
        });
    }
    Ok(())
}

/// Takes whatever is sent, and throws it away: as little of a receiver as can be.
fn receive(listener: std::net::TcpListener) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(take(stream));
        }
    })
}

async fn take(stream: TcpStream) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().context("content-length")?;
            }
            if line.is_empty() {
                break;
            }
        }
        tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
            )
            .await?;
    }
}
