//! Thousands of functions that are deployed and not called: what each costs, and what they cost the others.

use std::path::Path;

use anyhow::Context;
use weir_tests::guests;

use crate::load::Connection;
use crate::peers::{self, Wasmtime, Weir};
use crate::table::{Better, Row, Table, median, micros, millis};

/// How many there are before the many come.
const FEW: usize = 10;
/// Deploys and calls that are measured at each level.
const SAMPLES: usize = 100;

pub async fn run(table: &mut Table, functions: usize) -> anyhow::Result<()> {
    eprintln!("idle: {functions} functions");
    let mut weir = Weir::start().await?;
    let mut deployed = 0;
    let mut fill = async |weir: &mut Weir, up_to: usize| -> anyhow::Result<()> {
        while deployed < up_to {
            peers::deploy_hello(weir, &format!("idle-{deployed}")).await?;
            deployed += 1;
        }
        Ok(())
    };
    fill(&mut weir, FEW).await?;
    let before = weir.process.memory();
    let few = sample(&mut weir, "few").await?;
    fill(&mut weir, functions).await?;
    let after = weir.process.memory();
    let many = sample(&mut weir, "many").await?;

    let mut row = |what: String, unit, twin: String, weir: f64, twins: f64| {
        table.push(Row { bench: "idle", what, unit, better: Better::Lower, weir, twin, twins, target: None });
    };
    let twin = format!("with {FEW} functions");
    row(format!("deploy with {functions} functions, p50"), "ms", twin.clone(), many.deploy, few.deploy);
    row(format!("call with {functions} functions, p50"), "µs", twin.clone(), many.call, few.call);
    row(format!("first call from zero with {functions} functions, p50"), "ms", twin, many.cold, few.cold);
    let grown = after.saturating_sub(before) as f64 / 1024.0;
    // Those of the first sample are there too, and may still be awake.
    let each = grown / (functions.saturating_sub(FEW) + SAMPLES) as f64;
    if let Some(wasmtime) = Wasmtime::find().await {
        let server = wasmtime.serve(&[], Path::new(guests::HELLO)).await;
        Connection::open(&server.url).await.context("the twin")?.expect(&crate::load::get("/")).await?;
        let twins = server.memory() as f64 / 1024.0;
        row(
            "memory of an idle function".to_owned(),
            "KiB",
            "an idle `wasmtime serve`".to_owned(),
            each,
            twins,
        );
    } else {
        let whole = before as f64 / 1024.0;
        row("memory of an idle function".to_owned(), "KiB", "the server itself".to_owned(), each, whole);
    }
    Ok(())
}

/// Medians at one level.
struct Sample {
    /// ms
    deploy: f64,
    /// ms
    cold: f64,
    /// µs
    call: f64,
}

async fn sample(weir: &mut Weir, level: &str) -> anyhow::Result<Sample> {
    let mut caller = Connection::open(&weir.process.url).await?;
    let (mut deploys, mut colds, mut calls) = (vec![], vec![], vec![]);
    for number in 0..SAMPLES {
        let name = format!("{level}-{number}");
        let started = std::time::Instant::now();
        peers::deploy_hello(weir, &name).await?;
        deploys.push(millis(started.elapsed()));
        let call = peers::hello(&name);
        colds.push(millis(caller.expect(&call).await?.whole));
        for _ in 0..10 {
            calls.push(micros(caller.expect(&call).await?.whole));
        }
    }
    Ok(Sample { deploy: median(&deploys), cold: median(&colds), call: median(&calls) })
}
