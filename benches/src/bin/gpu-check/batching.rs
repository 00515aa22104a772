//! Sixteen callers of a model whose weights are most of its work, one by one and as batches.

use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use weir_gpu::{Batching, Job, Lease, ModelPolicy, Service, Tensor};

use crate::bench::Bench;
use crate::door;
use crate::models;
use crate::table::median;

const CALLERS: u32 = 16;
const CALLS: u32 = 40;
const ROUNDS: usize = 3;

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let case = models::perceptron(2048, 2)?;
    let input = case.input(1, 1)?;
    // One number of rows, so that a GPU, which has a plan for each, has one for all of them.
    let rows = u64::from(CALLERS);
    let together = Batching { max_batch: rows, preferred: vec![rows], padding: true, ..Batching::default() };
    let policies = [Batching::default(), together]
        .map(|batching| ModelPolicy { batching: Arc::new(batching), ..ModelPolicy::default() });
    // Held over all rounds: with the last lease the plans would go.
    let mut leases = Vec::new();
    for policy in policies {
        leases.push(bench.load(&service, "t", &door::model(case.name, case.bytes.clone(), policy))?);
    }
    let mut rates = [vec![], vec![]];
    // The first round makes plans, and does not count.
    for round in 0..=ROUNDS {
        for (lease, rates) in leases.iter().zip(&mut rates) {
            let rate = bench.block_on(rate(&service, lease, &input))?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let [alone, together] = rates.map(|rates| median(&rates));
    let stats = service.stats();
    let times = together / alone;
    let least = if bench.is_gpu() { 1.2 } else { 1.0 };
    let rows = stats.batched as f64 / stats.batches.max(1) as f64;
    let measured = format!("{together:.0}/s against {alone:.0}/s: {times:.2}×; {rows:.1} rows in a batch");
    bench.judged(
        &format!("perceptron with 32 MiB of weights, {CALLERS} callers"),
        measured,
        format!("> {least}×"),
        times > least,
    );
    Ok(())
}

/// Answers per second.
async fn rate(service: &Service, lease: &Arc<Lease>, input: &Tensor) -> anyhow::Result<f64> {
    let began = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let (service, lease, input) = (service.clone(), Arc::clone(lease), input.clone());
        tokio::spawn(async move {
            for _ in 0..CALLS {
                door::infer(&service, &lease, &input, Job::default()).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in join_all(callers).await {
        caller??;
    }
    Ok(f64::from(CALLERS * CALLS) / began.elapsed().as_secs_f64())
}
