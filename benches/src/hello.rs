//! Requests per second of a function that says hello, at 16 connections.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use weir_tests::{Process, guests};

use crate::load::{closed_loop, get};
use crate::peers::{self, Wasmtime, Weir};
use crate::table::{Better, Row, Table, Target, median, quantile};

const CONNECTIONS: usize = 16;
const SPAN: Duration = Duration::from_secs(2);
/// The pooling allocator with memory kept resident, as Weir has it.
const TUNED: &[&str] = &[
    "-Opooling-allocator=y",
    "-Opooling-memory-keep-resident=2097152",
    "-Opooling-table-keep-resident=524288",
];
const ASYNC: &[&str] = &["-Sp3", "-Wcomponent-model-async"];

/// One server and the request that it gets.
struct Contender {
    name: &'static str,
    url: String,
    request: Vec<u8>,
    rates: Vec<f64>,
    latencies: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, url: &str, request: Vec<u8>) -> Self {
        Self { name, url: url.to_owned(), request, rates: vec![], latencies: vec![] }
    }

    async fn round(&mut self) -> anyhow::Result<()> {
        let load = closed_loop(&self.url, &self.request, CONNECTIONS, SPAN).await?;
        self.rates.push(load.rate);
        self.latencies.push(quantile(&load.latencies, 0.5));
        Ok(())
    }
}

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    eprintln!("hello: {CONNECTIONS} connections, {rounds} rounds of {SPAN:?} each, in turn");
    let mut weir = Weir::start().await?;
    peers::deploy_hello(&mut weir, "fresh").await?;
    weir.deploy("reuse", guests::HELLO, json!({ "reuse": 128 })).await?;
    weir.deploy("async", guests::HELLO_P3, json!({ "reuse": 128 })).await?;
    let axum = peers::axum().await;
    let mut contenders = vec![
        Contender::new("fresh", &weir.process.url, peers::hello("fresh")),
        Contender::new("reuse", &weir.process.url, peers::hello("reuse")),
        Contender::new("async", &weir.process.url, peers::hello("async")),
        Contender::new("axum", &axum.url, get("/")),
    ];
    let mut servers: Vec<Process> = vec![axum];
    if let Some(wasmtime) = Wasmtime::find().await {
        for (name, flags, component) in [
            ("default", &[][..], guests::HELLO),
            ("tuned", TUNED, guests::HELLO),
            ("default, async", ASYNC, guests::HELLO_P3),
        ] {
            let server = wasmtime.serve(flags, Path::new(component)).await;
            contenders.push(Contender::new(name, &server.url, get("/")));
            servers.push(server);
        }
    }
    // The first round wakes everyone, and does not count.
    for round in 0..=rounds {
        for contender in &mut contenders {
            contender.round().await?;
            if round == 0 {
                (contender.rates, contender.latencies) = (vec![], vec![]);
            }
        }
    }

    let find = |name: &str| contenders.iter().find(|contender| contender.name == name);
    let pairs = [
        ("fresh sandbox per call", "fresh", "`wasmtime serve`", "default", Some(Target::Times(1.8))),
        ("fresh sandbox per call", "fresh", "`wasmtime serve`, pooling, resident", "tuned", None),
        ("fresh sandbox per call", "fresh", "bare axum", "axum", None),
        ("reuse = 128", "reuse", "`wasmtime serve`", "default", None),
        ("reuse = 128", "reuse", "bare axum", "axum", None),
        (
            "wasi:http 0.3, reuse = 128",
            "async",
            "`wasmtime serve` of it (reuses 128 times)",
            "default, async",
            None,
        ),
    ];
    for (what, ours, twin, theirs, target) in pairs {
        let (Some(ours), Some(theirs)) = (find(ours), find(theirs)) else { continue };
        let row = |what: String, unit, better, weir, twins, target| Row {
            bench: "hello",
            what,
            unit,
            better,
            weir,
            twin: twin.to_owned(),
            twins,
            target,
        };
        let (rate, their_rate) = (median(&ours.rates), median(&theirs.rates));
        table.push(row(what.to_owned(), "calls/s", Better::Higher, rate, their_rate, target));
        let (latency, their_latency) = (median(&ours.latencies), median(&theirs.latencies));
        table.push(row(format!("{what}, p50"), "µs", Better::Lower, latency, their_latency, None));
    }
    Ok(())
}
