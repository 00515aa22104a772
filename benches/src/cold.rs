//! The first byte of a function at zero, its artifact on disk, against the same function awake, and against the start
//! of a process of its own.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_tests::guests;

use crate::load::{Connection, get};
use crate::peers::{self, Wasmtime, Weir};
use crate::table::{Better, Row, Table, Target, median, millis, quantile};

/// Starts from zero in each round.
const STARTS: usize = 20;

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    let starts = rounds * STARTS;
    eprintln!("cold: {starts} starts from zero");
    let mut weir = Weir::start().await?;
    weir.deploy("hello", guests::HELLO, json!({ "idle_timeout": "20ms" })).await?;
    let (hello, mut caller) = (peers::hello("hello"), Connection::open(&weir.process.url).await?);
    let (mut cold, mut warm, mut code, mut sandbox) = (vec![], vec![], vec![], vec![]);
    for _ in 0..starts {
        let status = loop {
            let status = weir.status("hello").await?;
            if status.pointer("/state").is_some_and(|state| state == "zero") {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let phase = |name: &str| status.pointer(&format!("/revisions/0/last_cold_start/{name}"))?.as_f64();
        code.extend(phase("code_ms"));
        sandbox.extend(phase("sandbox_ms"));
        cold.push(millis(caller.expect(&hello).await?.first_byte));
        warm.push(millis(caller.expect(&hello).await?.first_byte));
    }
    let mut row = |what: &str, twin: &str, weir: f64, twins: f64, target| {
        let (what, twin) = (what.to_owned(), twin.to_owned());
        table.push(Row { bench: "cold", what, unit: "ms", better: Better::Lower, weir, twin, twins, target });
    };
    let target = Some(Target::AtMost(5.0));
    row("first byte from zero, p50", "the same, awake", median(&cold), median(&warm), target);
    let (cold_slow, warm_slow) = (quantile(&cold, 0.99), quantile(&warm, 0.99));
    row("first byte from zero, p99", "the same, awake", cold_slow, warm_slow, None);
    row("mapping code, of it", "making the first sandbox", median(&code), median(&sandbox), None);

    let Some(wasmtime) = Wasmtime::find().await else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let compiled = folder.path().join("hello.cwasm");
    wasmtime.compile(guests::HELLO, &compiled).await?;
    let mut process = vec![];
    for _ in 0..starts / 5 + 1 {
        let started = Instant::now();
        let server = wasmtime.serve(&["--allow-precompiled"], &compiled).await;
        let before = started.elapsed();
        let reply = Connection::open(&server.url).await?.expect(&get("/")).await?;
        process.push(millis(before + reply.first_byte));
        server.kill().await;
    }
    let twin = "`wasmtime serve`, precompiled, from its start";
    row("first byte from zero, p50", twin, median(&cold), median(&process), None);
    Ok(())
}
