//! What a call adds to its inference: a function that runs a model once, against the engine called directly.

use std::time::Instant;

use anyhow::Context;
use serde_json::json;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::prelude::{
    Datum, Framework, InferenceModelExt, IntoRunnable, Tensor, TypedRunnableModel, tvec,
};
use weir_tests::onnx::Axis;
use weir_tests::{guests, onnx};

use crate::load::{Connection, get, request};
use crate::peers::{self, Weir};
use crate::table::{Better, Row, Table, Target, median, micros, quantile};

/// A model and one input for it.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    input: (&'static str, &'static str, Tensor),
    /// Runs in each round.
    runs: usize,
    /// For what a call adds; only short inferences have one.
    target: Option<Target>,
}

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    let small = onnx::double(DataType::Float, &[Axis::Fixed(1), Axis::Fixed(4)]);
    let features: Vec<i32> = (0..2048).map(|place| place % 257).collect();
    let cases = [
        Case {
            name: "one addition",
            bytes: small,
            input: ("x", "fp32", Tensor::from_shape(&[1, 4], &[1.0_f32, 2.0, 3.0, 4.0])?),
            runs: 400,
            target: Some(Target::AtMost(150.0)),
        },
        Case {
            name: "magika",
            bytes: weir_tests::model("magika/model.onnx"),
            input: ("bytes", "i32", Tensor::from_shape(&[1, 2048], &features)?),
            runs: 40,
            target: None,
        },
    ];
    let mut weir = Weir::start().await?;
    peers::deploy_hello(&mut weir, "hello").await?;
    for case in cases {
        eprintln!("inference: {}, {rounds} rounds of {} runs, in turn", case.name, case.runs);
        measure(table, &mut weir, rounds, &case).await.context(case.name)?;
    }
    Ok(())
}

async fn measure(table: &mut Table, weir: &mut Weir, rounds: usize, case: &Case) -> anyhow::Result<()> {
    let (input, ty, tensor) = &case.input;
    let bare = bare(&case.bytes, tensor)?;
    weir.put_model("model", &case.bytes).await?;
    weir.deploy("fresh", guests::NN, json!({ "models": ["model"] })).await?;
    weir.deploy("reuse", guests::NN, json!({ "models": ["model"], "reuse": 128 })).await?;
    let shape: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
    let query = format!("model=model&input={input}&type={ty}&shape={}", shape.join(","));
    let call = |function: &str| {
        let path = format!("/fn/default/{function}/raw?{query}");
        request("POST", &path, "application/octet-stream", tensor.as_bytes())
    };
    let axum = peers::axum().await;
    let url = &weir.process.url;
    let mut callers = [
        Caller::new(url, call("fresh")).await?,
        Caller::new(url, call("reuse")).await?,
        Caller::new(url, peers::hello("hello")).await?,
        Caller::new(&axum.url, get("/")).await?,
    ];
    let mut direct = vec![];
    let wanted = bare.run(tvec!(tensor.clone().into()))?;
    let wanted = wanted.first().context("no output")?.as_bytes();
    // The first run wakes everyone, and does not count.
    for run in 0..=rounds * case.runs {
        // Whoever follows another finds the caches as that one left them: each begins in turn.
        let everyone = callers.len() + 1;
        for turn in (0..everyone).cycle().skip(run % everyone).take(everyone) {
            match callers.get_mut(turn) {
                Some(caller) => {
                    let body = caller.call(run > 0).await?;
                    anyhow::ensure!(turn >= 2 || close(&body, wanted), "the answers differ");
                }
                None => {
                    let started = Instant::now();
                    bare.run(tvec!(tensor.clone().into()))?;
                    if run > 0 {
                        direct.push(micros(started.elapsed()));
                    }
                }
            }
        }
    }
    let [by_fresh, by_reuse, by_hello, by_axum] = callers.map(|caller| caller.latencies);
    let mut row = |what: String, twin: &str, weir: f64, twins: f64, target| {
        let twin = twin.to_owned();
        table.push(Row {
            bench: "inference",
            what,
            unit: "µs",
            better: Better::Lower,
            weir,
            twin,
            twins,
            target,
        });
    };
    let name = case.name;
    row(format!("{name}, whole call, p50"), "bare tract", median(&by_fresh), median(&direct), None);
    let (fresh_slow, bare_slow) = (quantile(&by_fresh, 0.99), quantile(&direct, 0.99));
    row(format!("{name}, whole call, p99"), "bare tract", fresh_slow, bare_slow, None);
    // Beside a long inference the difference drowns in what the machine does to both.
    if case.target.is_none() {
        return Ok(());
    }
    // Run by run, so that what the machine does meanwhile is in both.
    let added = |calls: &[f64]| {
        let pairs = calls.iter().zip(&direct);
        median(&pairs.map(|(call, bare)| call - bare).collect::<Vec<f64>>())
    };
    let (hello, http) = (median(&by_hello), median(&by_axum));
    row(format!("{name}, added, p50"), "a call of hello", added(&by_fresh), hello, case.target);
    row(format!("{name}, added, p50"), "a request to bare axum", added(&by_fresh), http, None);
    row(format!("{name}, added, reuse = 128, p50"), "a request to bare axum", added(&by_reuse), http, None);
    Ok(())
}

/// One who sends the same request again and again.
struct Caller {
    connection: Connection,
    request: Vec<u8>,
    /// µs
    latencies: Vec<f64>,
}

impl Caller {
    async fn new(url: &str, request: Vec<u8>) -> anyhow::Result<Self> {
        Ok(Self { connection: Connection::open(url).await?, request, latencies: vec![] })
    }

    async fn call(&mut self, counts: bool) -> anyhow::Result<Vec<u8>> {
        let reply = self.connection.expect(&self.request).await?;
        if counts {
            self.latencies.push(micros(reply.whole));
        }
        Ok(reply.body)
    }
}

/// The model, prepared for exactly this input.
fn bare(model: &[u8], input: &Tensor) -> anyhow::Result<std::sync::Arc<TypedRunnableModel>> {
    let model = tract_onnx::onnx().model_for_read(&mut std::io::Cursor::new(model))?;
    let fact = tract_onnx::prelude::InferenceFact::dt_shape(input.datum_type(), input.shape());
    model.with_input_fact(0, fact)?.into_optimized()?.into_runnable()
}

/// Whether two answers are the same floats, but for their last bits.
fn close(one: &[u8], other: &[u8]) -> bool {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let chunks = bytes.chunks_exact(f32::datum_type().size_of());
        chunks.filter_map(|chunk| chunk.try_into().ok().map(f32::from_le_bytes)).collect()
    };
    let pairs = floats(one).into_iter().zip(floats(other));
    one.len() == other.len() && pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-4)
}
