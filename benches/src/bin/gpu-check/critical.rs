//! A small critical model that is asked for twenty times a second, alone and beside another tenant that floods a large one
//! of the batch class. A request that has to wait makes the next one no later, and its latency counts from when it was due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::future::join_all;
use weir_gpu::{Class, Error, Job, Lease, ModelPolicy, Service, Tensor};

use crate::bench::Bench;
use crate::door;
use crate::models::{self, Case, LARGE, MAGIKA, RESNET50};
use crate::report::time;
use crate::table::{median, millis, quantile};
use crate::twin::Twin;

const FLOODS: usize = 4;
const EVERY: Duration = Duration::from_millis(50);
const REQUESTS: u32 = 100;
/// Rows of each of the flood's requests, on a GPU.
const FLOOD_ROWS: usize = 32;

/// What p99 beside the flood may be: so many times that alone, one operator of the flood, and so many milliseconds.
const TIMES: f64 = 3.0;
const BESIDE: f64 = 5.0;

/// Someone who asks the same again and again.
#[derive(Clone)]
struct Caller {
    service: Service,
    lease: Arc<Lease>,
    input: Tensor,
    class: Class,
}

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let small = MAGIKA.case(bench.models())?;
    let (large, rows) = if bench.is_gpu() {
        (models::encoder(LARGE), FLOOD_ROWS)
    } else {
        (RESNET50.case(bench.models())?, 1)
    };
    let flooding = large.input(rows, 1)?;
    // Gone before the measurement: it takes memory of the device.
    let longest = Twin::new(bench.kind, &large, &flooding)?.longest_operator()?;
    let service = bench.service(&bench.config())?;
    let victim = caller(bench, &service, "victim", &small, small.input(1, 1)?, Class::Critical)?;
    let flood = caller(bench, &service, "flood", &large, flooding, Class::Batch)?;
    let alone = bench.block_on(ask(&victim))?;
    let (beside, answered) = bench.block_on(beside(&victim, &flood))?;
    ensure!(answered > 0, "the flood was not answered once");
    let slow = |latencies: &[f64]| quantile(latencies, 0.99);
    let most = TIMES * slow(&alone) + longest + BESIDE;
    let measured = format!(
        "p99 {} beside {}, {} alone; p50 {}, {} alone; the flood was answered {answered} times",
        time(slow(&beside)),
        large.name,
        time(slow(&alone)),
        time(median(&beside)),
        time(median(&alone)),
    );
    let bound = format!(
        "p99 ≤ {} ({TIMES}× alone + {}, the flood's longest operator on the direct engine + {})",
        time(most),
        time(longest),
        time(BESIDE),
    );
    bench.judged(&format!("{}, critical", small.name), measured, bound, slow(&beside) <= most);
    Ok(())
}

/// A tenant's caller, who has asked a few times.
fn caller(
    bench: &Bench,
    service: &Service,
    tenant: &str,
    case: &Case,
    input: Tensor,
    class: Class,
) -> anyhow::Result<Caller> {
    let source = door::model(case.name, case.bytes.clone(), ModelPolicy::default());
    let lease = bench.load(service, tenant, &source)?;
    let caller = Caller { service: service.clone(), lease, input, class };
    for _ in 0..3 {
        bench.block_on(caller.ask())?;
    }
    Ok(caller)
}

impl Caller {
    async fn ask(&self) -> Result<(), Error> {
        let job = Job { class: self.class, ..Job::default() };
        door::infer(&self.service, &self.lease, &self.input, job).await.map(|_| ())
    }
}

/// Milliseconds from when each request was due to its answer.
async fn ask(victim: &Caller) -> anyhow::Result<Vec<f64>> {
    let began = Instant::now();
    let requests = (0..REQUESTS).map(|request| {
        let victim = victim.clone();
        tokio::spawn(async move {
            let due = began + EVERY * request;
            tokio::time::sleep_until(due.into()).await;
            victim.ask().await?;
            anyhow::Ok(millis(due.elapsed()))
        })
    });
    let mut latencies = vec![];
    for latency in join_all(requests).await {
        latencies.push(latency??);
    }
    Ok(latencies)
}

/// The same while others ask again as soon as they are answered; and how often those were.
async fn beside(victim: &Caller, flood: &Caller) -> anyhow::Result<(Vec<f64>, u64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..FLOODS)
        .map(|_| {
            let (flood, stop) = (flood.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answered = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    flood.ask().await?;
                    answered += 1;
                }
                anyhow::Ok(answered)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let latencies = ask(victim).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for flood in join_all(floods).await {
        answered += flood??;
    }
    Ok((latencies?, answered))
}
