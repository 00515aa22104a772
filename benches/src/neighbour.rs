//! A tenant with a small model and little to ask, beside one that floods a large one. One lane, as a GPU has it.
//!
//! The victim asks twenty times a second, by the clock: a request that has to wait makes the next one no later, and its
//! latency counts from when it was due. The twin is the same engine and the same requests, first come first served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use tokio::sync::Semaphore;
use tract_onnx::prelude::{TValue, TypedRunnableModel, tvec};
use weir_gpu::{Job, Lease, ModelPolicy, Service, TenantShare, Tensor};

use crate::door;
use crate::table::{Better, Row, Table, Target, median, millis, quantile};

const FLOODS: usize = 4;
const EVERY: Duration = Duration::from_millis(50);
const REQUESTS: usize = 100;

/// Someone who can be asked for one inference.
type Ask = Arc<dyn Fn() -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    // The bench's own thread sends requests; the jobs need a runtime that has threads of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let rows = runtime.spawn(measure(rounds)).await.context("the bench ended")??;
    runtime.shutdown_background();
    rows.into_iter().for_each(|row| table.push(row));
    Ok(())
}

async fn measure(rounds: usize) -> anyhow::Result<Vec<Row>> {
    let (small, large) = (weir_tests::model("magika/model.onnx"), weir_tests::model("light/resnet50.onnx"));
    let (tokens, image) = (door::tokens()?, door::f32s(&[1, 3, 224, 224])?);
    let service = door::service(&door::one_lane());
    let source = |name, bytes: &[u8]| door::model(name, bytes.to_vec(), ModelPolicy::default());
    let victims = door::load(&service, "victim", &source("small", &small)).await?;
    let floods = door::load(&service, "flood", &source("large", &large)).await?;
    let weir = [asks(&service, victims, &tokens), asks(&service, floods, &image)];
    let (bare_small, bare_large) = (door::bare(&small, &tokens)?, door::bare(&large, &image)?);
    let longest = longest_operator(&bare_large.0, &bare_large.1)?;
    let lane = Arc::new(Semaphore::new(1));
    let fifo = [queues(&lane, bare_small), queues(&lane, bare_large)];

    eprintln!("neighbour: {rounds} rounds of {REQUESTS} requests alone, first come first served, and shared");
    let (mut alone, mut in_turn, mut shared, mut fifo_alone) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        alone.extend(victim(&weir[0]).await?);
        shared.extend(beside(&weir[0], &weir[1]).await?);
        fifo_alone.extend(victim(&fifo[0]).await?);
        in_turn.extend(beside(&fifo[0], &fifo[1]).await?);
    }
    let row = |what: &str, weir: f64, twin: &str, twins: f64, target| Row {
        bench: "neighbour",
        what: what.to_owned(),
        unit: "ms",
        better: Better::Lower,
        weir,
        twin: twin.to_owned(),
        twins,
        target,
    };
    let slow = |latencies: &[f64]| quantile(latencies, 0.99);
    let most = slow(&alone) * 1.5 + longest;
    let mut rows = vec![
        row("victim alone, p99", slow(&alone), "bare tract behind a lock", slow(&fifo_alone), None),
        row("victim beside a flood, p50", median(&shared), "first come first served", median(&in_turn), None),
        row(
            "victim beside a flood, p99",
            slow(&shared),
            "first come first served",
            slow(&in_turn),
            Some(Target::Times(10.0)),
        ),
        row(
            "victim beside a flood, p99",
            slow(&shared),
            "the same, alone",
            slow(&alone),
            Some(Target::AtMost(most)),
        ),
        row("the flood's longest operator", longest, "the victim alone, p50", median(&alone), None),
    ];
    rows.extend(weights().await?);
    Ok(rows)
}

/// Through the door.
fn asks(service: &Service, lease: Arc<Lease>, input: &Tensor) -> Ask {
    let (service, input) = (service.clone(), input.clone());
    Arc::new(move || {
        let (service, lease, input) = (service.clone(), Arc::clone(&lease), input.clone());
        async move {
            door::infer(&service, &lease, &input, Job::default()).await?;
            Ok(())
        }
        .boxed()
    })
}

/// The bare engine behind a lock that is fair: whoever came first goes first.
fn queues(lane: &Arc<Semaphore>, (model, input): (Arc<TypedRunnableModel>, TValue)) -> Ask {
    let lane = Arc::clone(lane);
    Arc::new(move || {
        let (lane, model, input) = (Arc::clone(&lane), Arc::clone(&model), input.clone());
        async move {
            let held = lane.acquire_owned().await?;
            let run = move || {
                let outputs = model.run(tvec!(input));
                drop(held);
                outputs.map(|_| ())
            };
            tokio::task::spawn_blocking(run).await??;
            Ok(())
        }
        .boxed()
    })
}

/// Latencies of requests that come by the clock, in milliseconds from when each was due.
async fn victim(ask: &Ask) -> anyhow::Result<Vec<f64>> {
    let began = Instant::now();
    let requests = (0..REQUESTS).map(|request| {
        let ask = Arc::clone(ask);
        tokio::spawn(async move {
            let due = began + EVERY * u32::try_from(request)?;
            tokio::time::sleep_until(due.into()).await;
            ask().await?;
            anyhow::Ok(millis(due.elapsed()))
        })
    });
    let mut latencies = vec![];
    for latency in join_all(requests).await {
        latencies.push(latency??);
    }
    Ok(latencies)
}

/// The same, while others ask again as soon as they are answered.
async fn beside(ask: &Ask, flood: &Ask) -> anyhow::Result<Vec<f64>> {
    let stop = Arc::new(AtomicBool::new(false));
    let floods: futures::stream::FuturesUnordered<_> = (0..FLOODS)
        .map(|_| {
            let (flood, stop) = (Arc::clone(flood), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    flood().await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let latencies = victim(ask).await;
    stop.store(true, Ordering::Relaxed);
    for flood in floods.collect::<Vec<_>>().await {
        flood??;
    }
    latencies
}

/// Milliseconds of the operator that takes longest: nobody is let in before it ends.
fn longest_operator(model: &Arc<TypedRunnableModel>, input: &TValue) -> anyhow::Result<f64> {
    let mut longest = vec![];
    for _ in 0..5 {
        let mut most = Duration::ZERO;
        model.spawn()?.run_plan_with_eval(
            tvec!(input.clone()),
            |context, state, node, inputs| -> Result<_, tract_onnx::prelude::TractError> {
                let started = Instant::now();
                let outputs = tract_onnx::tract_core::plan::eval(context, state, node, inputs);
                most = most.max(started.elapsed());
                outputs
            },
        )?;
        longest.push(millis(most));
    }
    Ok(median(&longest))
}

/// Three tenants that always have requests waiting, with weights 1, 2 and 4.
async fn weights() -> anyhow::Result<Vec<Row>> {
    let service = door::service(&door::one_lane());
    let source = door::model("small", weir_tests::model("magika/model.onnx"), ModelPolicy::default());
    let tokens = door::tokens()?;
    let tenants = [("one", 1), ("two", 2), ("four", 4)];
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = vec![];
    for (tenant, weight) in tenants {
        service.set_tenant(tenant, TenantShare { weight, ..TenantShare::default() });
        let ask = asks(&service, door::load(&service, tenant, &source).await?, &tokens);
        for _ in 0..3 {
            let (ask, stop) = (Arc::clone(&ask), Arc::clone(&stop));
            workers.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    ask().await?;
                }
                anyhow::Ok(())
            }));
        }
    }
    let used = || -> BTreeMap<Arc<str>, u64> {
        service.stats().devices.first().map(|device| device.device_time.clone()).unwrap_or_default()
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = used();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let after = used();
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await??;
    }
    let had = |tenant: &str| {
        let at = |times: &BTreeMap<Arc<str>, u64>| times.get(tenant).copied().unwrap_or(0);
        (at(&after) - at(&before)) as f64
    };
    let all: f64 = tenants.iter().map(|(tenant, _)| had(tenant)).sum();
    let row = |(tenant, weight): (&str, u32)| {
        let due = 100.0 * f64::from(weight) / 7.0;
        let share = 100.0 * had(tenant) / all;
        eprintln!("  weight {weight}: {share:.2} % of device time, due {due:.2} %");
        Row {
            bench: "neighbour",
            what: format!("share of weight {weight} of 7 is off by"),
            unit: "%",
            better: Better::Lower,
            weir: (share / due - 1.0).abs() * 100.0,
            twin: "equal shares".to_owned(),
            twins: ((100.0 / 3.0) / due - 1.0).abs() * 100.0,
            target: Some(Target::AtMost(5.0)),
        }
    };
    Ok(tenants.into_iter().map(row).collect())
}
