//! Two hundred models on a device that holds a fifth of them, most of them wanted rarely: what they are worth decides who
//! makes room, against plainly who was used longest ago.

use std::time::{Duration, Instant};

use anyhow::Context;
use weir_gpu::{DeviceConfig, Eviction, Job, Keep, ModelPolicy, ModelSource, Service};

use crate::door;
use crate::table::{Better, Row, Table, median, millis, quantile};

const MODELS: usize = 200;
const REQUESTS: usize = 4000;

pub async fn run(table: &mut Table, rounds: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.spawn(measure(rounds)).await.context("the bench ended")?;
    runtime.shutdown_background();
    let [cost, lru] = measured?;
    let row = |what: &str, unit, better, weir, twins| Row {
        bench: "residency",
        what: what.to_owned(),
        unit,
        better,
        weir,
        twin: "least recently used".to_owned(),
        twins,
        target: None,
    };
    table.push(row("graphs found in memory", "%", Better::Higher, median(&cost.hits), median(&lru.hits)));
    table.push(row("time spent loading", "ms", Better::Lower, median(&cost.loading), median(&lru.loading)));
    table.push(row(
        "p50",
        "ms",
        Better::Lower,
        quantile(&cost.latencies, 0.5),
        quantile(&lru.latencies, 0.5),
    ));
    table.push(row(
        "p99",
        "ms",
        Better::Lower,
        quantile(&cost.latencies, 0.99),
        quantile(&lru.latencies, 0.99),
    ));
    table.push(row("evictions", "", Better::Lower, median(&cost.evictions), median(&lru.evictions)));
    Ok(())
}

#[derive(Default)]
struct Side {
    hits: Vec<f64>,
    loading: Vec<f64>,
    evictions: Vec<f64>,
    latencies: Vec<f64>,
}

struct Wanted {
    source: ModelSource,
    width: usize,
}

async fn measure(rounds: usize) -> anyhow::Result<[Side; 2]> {
    let models = models().await?;
    let all: u64 = models.iter().filter_map(|wanted| wanted.source.examined).sum();
    let mut sides = [Side::default(), Side::default()];
    eprintln!("residency: {MODELS} models of {} KiB, {rounds} rounds of {REQUESTS} requests", all >> 10);
    for round in 0..rounds {
        for (side, eviction) in sides.iter_mut().zip([Eviction::Cost, Eviction::Lru]) {
            let config = DeviceConfig { memory: all / 5, eviction, ..door::one_lane() };
            trace(side, &door::service(&config), &models, round as u64).await?;
        }
    }
    Ok(sides)
}

/// Models of many sizes, from 64 KiB to 4 MiB of weights, in one layer or many.
async fn models() -> anyhow::Result<Vec<Wanted>> {
    let mut rng = fastrand::Rng::with_seed(7);
    let service = door::service(&door::one_lane());
    let mut models = vec![];
    for number in 0..MODELS {
        let (width, layers) = (128 << rng.usize(..3), 1 + rng.usize(..4));
        let bytes = weir_tests::onnx::perceptron(i64::try_from(width)?, layers, number as u64);
        let keep = Keep { keep_alive: Duration::from_secs(3600), ..Keep::default() };
        let mut source =
            door::model(&format!("m{number}"), bytes, ModelPolicy { keep, ..ModelPolicy::default() });
        source.examined = Some(service.inspect(&source).await?.memory);
        models.push(Wanted { source, width });
    }
    Ok(models)
}

/// Requests one after another. The n-th model is wanted as often as 1/n; which is which is drawn anew in each round, the
/// same for both sides.
async fn trace(side: &mut Side, service: &Service, models: &[Wanted], round: u64) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(round);
    let mut order: Vec<usize> = (0..models.len()).collect();
    rng.shuffle(&mut order);
    let weights: Vec<f64> = (1..=models.len()).map(|rank| 1.0 / rank as f64).collect();
    let whole: f64 = weights.iter().sum();
    let mut loading = Duration::ZERO;
    for _ in 0..REQUESTS {
        let mut drawn = rng.f64() * whole;
        let rank = weights.iter().position(|weight| {
            drawn -= weight;
            drawn < 0.0
        });
        let model = rank.and_then(|rank| models.get(*order.get(rank)?)).context("no model was drawn")?;
        let asked = Instant::now();
        let lease = door::load(service, "t", &model.source).await?;
        loading += lease.load_time().unwrap_or_default();
        door::infer(service, &lease, &door::f32s(&[1, model.width])?, Job::default()).await?;
        side.latencies.push(millis(asked.elapsed()));
    }
    let stats = service.stats();
    side.hits.push(100.0 * stats.hits as f64 / REQUESTS as f64);
    side.loading.push(millis(loading));
    side.evictions.push(stats.evictions as f64);
    Ok(())
}
