//! Requests that ride together, against the same requests one by one: a model whose weights are most of the work, which
//! are read once for all rows, and one that computes as much for each row whoever it rides with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use weir_gpu::{Batching, Job, ModelPolicy, Tensor};

use crate::door;
use crate::table::{Better, Row, Table, median, millis, quantile};

const CALLERS: usize = 16;

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wide = weir_tests::onnx::perceptron(2048, 2, 1);
    let cases = [
        ("perceptron, 32 MiB of weights", wide, door::f32s(&[1, 2048])?, 60),
        ("magika", weir_tests::model("magika/model.onnx"), door::tokens()?, 8),
    ];
    for (name, bytes, input, calls) in cases {
        eprintln!("batching: {name}, {rounds} rounds of {calls} calls by each of {CALLERS} callers");
        let measured = runtime.spawn(measure(bytes, input, rounds, calls));
        let [alone, together] = measured.await.context("the bench ended")??;
        let row = |what: &str, unit, better, weir, twins| Row {
            bench: "batching",
            what: format!("{name}, {what}"),
            unit,
            better,
            weir,
            twin: "one by one".to_owned(),
            twins,
            target: None,
        };
        table.push(row("inferences", "1/s", Better::Higher, median(&together.rates), median(&alone.rates)));
        let slow = |side: &Side| quantile(&side.latencies, 0.99);
        table.push(row("p99", "ms", Better::Lower, slow(&together), slow(&alone)));
    }
    runtime.shutdown_background();
    Ok(())
}

#[derive(Default)]
struct Side {
    rates: Vec<f64>,
    latencies: Vec<f64>,
}

async fn measure(bytes: Vec<u8>, input: Tensor, rounds: usize, calls: usize) -> anyhow::Result<[Side; 2]> {
    let mut sides = [Side::default(), Side::default()];
    let service = door::service(&door::one_lane());
    let together = Batching { max_batch: 16, max_queue_delay: Duration::ZERO, ..Batching::default() };
    let policies = [Batching::default(), together]
        .map(|batching| ModelPolicy { batching: Arc::new(batching), ..ModelPolicy::default() });
    // The first round makes plans, and does not count.
    for round in 0..=rounds {
        for (side, policy) in sides.iter_mut().zip(&policies) {
            let lease = door::load(&service, "t", &door::model("m", bytes.clone(), policy.clone())).await?;
            let started = Instant::now();
            let callers = (0..CALLERS).map(|_| {
                let (service, lease, input) = (service.clone(), Arc::clone(&lease), input.clone());
                tokio::spawn(async move {
                    let mut latencies = vec![];
                    for _ in 0..calls {
                        let asked = Instant::now();
                        door::infer(&service, &lease, &input, Job::default()).await?;
                        latencies.push(millis(asked.elapsed()));
                    }
                    anyhow::Ok(latencies)
                })
            });
            let answers = join_all(callers).await;
            let took = started.elapsed();
            if round == 0 {
                continue;
            }
            side.rates.push((CALLERS * calls) as f64 / took.as_secs_f64());
            for latencies in answers {
                side.latencies.extend(latencies??);
            }
        }
    }
    let stats = service.stats();
    eprintln!("  {} batches of {} requests", stats.batches, stats.batched);
    Ok(sides)
}
