//! The time that is billed, against the time that the device itself measures for the same work on the direct engine; and
//! the parts of a batch, against the whole.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::future::join_all;
use weir_gpu::{Batching, Cost, Job, ModelPolicy, Service};

use crate::bench::Bench;
use crate::door;
use crate::models::{self, Case, LARGE, MAGIKA, RESNET50, SMALL};
use crate::report::time;
use crate::table::millis;
use crate::twin::Twin;

const PAIRS: usize = 100;
/// How many of them there are even where they take longer than [`SPAN`].
const LEAST: usize = 10;
const SPAN: Duration = Duration::from_secs(5);

/// What the billed time may be, in parts of the device's own.
const LEAST_RATIO: f64 = 0.8;
const MOST_RATIO: f64 = 1.5;

/// Rows of the requests that ride in one batch.
const RIDERS: [(&str, usize); 3] = [("one", 1), ("three", 3), ("four", 4)];
const ROWS: usize = 8;

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let folder = bench.models();
    let large = if bench.is_gpu() { Ok(models::encoder(LARGE)) } else { RESNET50.case(folder) };
    for case in [MAGIKA.case(folder), Ok(models::encoder(SMALL)), large] {
        match case {
            Ok(case) => bench.attempt(case.name, || against_events(bench, &service, &case)),
            Err(error) => bench.failed("a model", &error.to_string()),
        }
    }
    bench.attempt("the parts of a batch", || parts(bench, &service));
    Ok(())
}

fn against_events(bench: &Bench, service: &Service, case: &Case) -> anyhow::Result<()> {
    let input = case.input(1, 1)?;
    let source = door::model(case.name, case.bytes.clone(), ModelPolicy::default());
    let lease = bench.load(service, "t", &source)?;
    let twin = Twin::new(bench.kind, case, &input)?;
    for _ in 0..5 {
        bench.infer(service, &lease, &input, Job::default())?;
        twin.timed()?;
    }
    let (mut billed, mut by_device, mut pairs) = (Duration::ZERO, Duration::ZERO, 0);
    let until = Instant::now() + SPAN;
    while pairs < PAIRS && (pairs < LEAST || Instant::now() < until) {
        billed += bench.infer(service, &lease, &input, Job::default())?.cost.device();
        by_device += twin.timed()?;
        pairs += 1;
    }
    let ratio = billed.as_secs_f64() / by_device.as_secs_f64();
    let clock = if bench.is_gpu() { "events" } else { "the clock" };
    let shape = input.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
    bench.judged(
        &format!("{} on {shape}", case.name),
        format!(
            "{} billed, {} by {clock}, for {pairs} runs each: {ratio:.2}×",
            time(millis(billed)),
            time(millis(by_device)),
        ),
        format!("{LEAST_RATIO}× to {MOST_RATIO}×"),
        (LEAST_RATIO..=MOST_RATIO).contains(&ratio),
    );
    Ok(())
}

/// Three tenants' requests in one batch of a public model.
fn parts(bench: &Bench, service: &Service) -> anyhow::Result<()> {
    let case = models::perceptron(512, 3)?;
    let rows = u64::try_from(ROWS)?;
    let batching =
        Batching { max_batch: rows, max_queue_delay: Duration::from_secs(10), ..Batching::default() };
    let policy = ModelPolicy { public: true, batching: Arc::new(batching), ..ModelPolicy::default() };
    let source = door::model(case.name, case.bytes.clone(), policy);

    // The same rows as one request: what its tensors take is what the riders' take together.
    let lease = bench.load(service, "whole", &source)?;
    let alone = Job { alone: true, ..Job::default() };
    let whole = bench.infer(service, &lease, &case.input(ROWS, 1)?, alone)?.cost;

    let mut requests = vec![];
    for (tenant, rows) in RIDERS {
        requests.push((bench.load(service, tenant, &source)?, case.input(rows, 1)?));
    }
    let riders = requests.iter().map(|(lease, input)| door::infer(service, lease, input, Job::default()));
    let riders = bench.block_on(join_all(riders));
    let costs = riders.into_iter().map(|rider| rider.map(|rider| rider.cost));
    let costs = costs.collect::<Result<Vec<Cost>, _>>()?;
    ensure!(costs.iter().all(|cost| cost.batch == rows), "they did not ride in one batch: {costs:?}");
    let used = bench.at_rest(service)?.device_time;
    let charged: u128 =
        RIDERS.iter().filter_map(|(tenant, _)| used.get(*tenant)).map(|time| u128::from(*time)).sum();
    let billed: u128 = costs.iter().map(|cost| cost.device().as_nanos()).sum();
    let bytes: u64 = costs.iter().map(|cost| cost.used.peak).sum();
    // Whole nanoseconds of each operator's time, of which each has its rows' part, and none is lost on the way: what is over
    // goes to the next.
    let uneven = costs.iter().filter(|cost| {
        let (part, due) = (cost.device().as_nanos() * u128::from(rows), billed * u128::from(cost.rows));
        part.abs_diff(due) > u128::from(rows) * u128::from(cost.used.operators + 2)
    });
    let uneven = uneven.count();
    bench.judged(
        "the parts of a batch",
        format!(
            "{billed} ns billed to three, of {charged} ns that their lane was held; {uneven} parts are not by rows; \
             {bytes} B of {} B",
            whole.used.peak
        ),
        "what the lane was held; parts by rows to the nanosecond of each operator; bytes to the byte".to_owned(),
        billed > 0 && billed == charged && uneven == 0 && bytes.abs_diff(whole.used.peak) < rows,
    );
    Ok(())
}
