//! Each model against the CPU, and a batch against its rows one by one. Where the CPU itself is looked at, the direct engine
//! is what it is held against.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::join_all;
use weir_gpu::{Batching, DeviceKind, Dim, Dtype, Error, Job, Lease, ModelPolicy, Service, Tensor};

use crate::bench::Bench;
use crate::door;
use crate::models::{self, Case, FILES, SMALL};
use crate::twin::Twin;

/// Requests, of one row each, that ride in one batch.
const ROWS: u64 = 4;

/// How far two answers may be from each other: so much, and so much of the value beside.
#[derive(Clone, Copy)]
struct Tolerance(f32);

/// The largest differences.
#[derive(Default)]
struct Differs {
    by: f32,
    /// In parts of what is allowed.
    of_allowed: f32,
}

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    for file in &FILES {
        match file.case(bench.models()) {
            Ok(case) => bench.attempt(case.name, || check_or_refuse(bench, &service, &case)),
            Err(error) if file.is_optional => bench.not_run(file.name, &error.to_string()),
            Err(error) => bench.failed(file.name, &error.to_string()),
        }
    }
    for case in [models::perceptron(512, 3)?, models::encoder(SMALL)] {
        bench.attempt(case.name, || check(bench, &service, &case));
    }
    Ok(())
}

/// A model of somebody else's may be one that does not run on a GPU; it is told then.
fn check_or_refuse(bench: &Bench, service: &Service, case: &Case) -> anyhow::Result<()> {
    match check(bench, service, case) {
        Err(error) if matches!(error.downcast_ref::<Error>(), Some(Error::NotOnGpu(_))) => {
            bench.not_run(case.name, &error.to_string());
            Ok(())
        }
        checked => checked,
    }
}

fn check(bench: &Bench, service: &Service, case: &Case) -> anyhow::Result<()> {
    let source = door::model(case.name, case.bytes.clone(), ModelPolicy::default());
    let lease = bench.load(service, "t", &source)?;
    let tolerance = Tolerance(if bench.is_gpu() { 1e-2 } else { 1e-4 });
    let input = case.input(1, 1)?;
    let answer = outputs(bench, service, &lease, &input)?;
    let expected = expected(bench, service, case, &input)?;
    let differs = tolerance.compare(&answer, &expected)?;
    let other = if bench.is_gpu() { "the CPU device" } else { "the direct engine" };
    differs.judge(bench, &format!("{}: one row against {other}", case.name), tolerance);
    if bench.is_gpu() {
        let device = bench.device(service)?.name;
        let resident = service.stats().resident.into_iter();
        let mut here = resident.filter(|graph| *graph.digest == *case.name && *graph.device == *device);
        let graph = here.find(|graph| !graph.waits).context("the graph is not listed")?;
        let operators = counted(&graph.host_operators);
        bench.told(&format!("{}: operators that run on the CPU", case.name), operators);
    }
    batch(bench, service, case, &lease, tolerance)
}

/// The outputs' bytes, of a model that runs alone.
fn outputs(bench: &Bench, service: &Service, lease: &Lease, input: &Tensor) -> anyhow::Result<Vec<Tensor>> {
    let job = Job { alone: true, ..Job::default() };
    let answer = bench.infer(service, lease, input, job)?;
    Ok(answer.outputs.into_iter().map(|(_, output)| output).collect())
}

/// What the outputs' bytes should be.
fn expected(bench: &Bench, service: &Service, case: &Case, input: &Tensor) -> anyhow::Result<Vec<Vec<u8>>> {
    match bench.kind {
        DeviceKind::Gpu => {
            let source = door::model(case.name, case.bytes.clone(), ModelPolicy::default());
            let lease = bench.block_on(door::load(service, "reference", &source))?;
            let answer = outputs(bench, service, &lease, input)?;
            Ok(answer.iter().map(|output| output.data().to_vec()).collect())
        }
        DeviceKind::Cpu => {
            let answer = Twin::new(bench.kind, case, input)?.run()?;
            Ok(answer.iter().map(|output| output.as_bytes().to_vec()).collect())
        }
    }
}

/// Requests that ride together, against the same requests alone, on the same device.
fn batch(
    bench: &Bench,
    service: &Service,
    case: &Case,
    lease: &Lease,
    tolerance: Tolerance,
) -> anyhow::Result<()> {
    let what = format!("{}: a batch of {ROWS} against its rows", case.name);
    let first = lease.signature().inputs.first().and_then(|input| input.shape.first());
    if matches!(first, Some(Dim::Fixed(_))) {
        bench.not_run(&what, "the model takes one row at a time");
        return Ok(());
    }
    let inputs = (1..=ROWS).map(|seed| case.input(1, seed)).collect::<anyhow::Result<Vec<_>>>()?;
    let alone = inputs.iter().map(|input| outputs(bench, service, lease, input));
    let alone = alone.collect::<anyhow::Result<Vec<_>>>()?;
    // It departs when the last one has come.
    let batching =
        Batching { max_batch: ROWS, max_queue_delay: Duration::from_secs(10), ..Batching::default() };
    let policy = ModelPolicy { batching: Arc::new(batching), ..ModelPolicy::default() };
    let together = bench.load(service, "t", &door::model(case.name, case.bytes.clone(), policy))?;
    let before = service.stats().batches;
    let requests = inputs.iter().map(|input| door::infer(service, &together, input, Job::default()));
    let ridden = bench.block_on(join_all(requests));
    let mut differs = Differs::default();
    for (ridden, alone) in ridden.into_iter().zip(alone) {
        let ridden = ridden?;
        ensure!(ridden.cost.batch == ROWS, "a request rode in a batch of {}", ridden.cost.batch);
        let answer: Vec<Tensor> = ridden.outputs.into_iter().map(|(_, output)| output).collect();
        let alone: Vec<Vec<u8>> = alone.iter().map(|output| output.data().to_vec()).collect();
        differs.include(&tolerance.compare(&answer, &alone)?);
    }
    let batches = service.stats().batches.saturating_sub(before);
    ensure!(batches == 1, "the requests made {batches} batches, not one");
    differs.judge(bench, &what, tolerance);
    Ok(())
}

impl Tolerance {
    fn compare(self, answer: &[Tensor], expected: &[Vec<u8>]) -> anyhow::Result<Differs> {
        ensure!(!answer.is_empty() && answer.len() == expected.len(), "not as many outputs");
        let mut differs = Differs::default();
        for (output, expected) in answer.iter().zip(expected) {
            let (one, other) = (output.data(), expected);
            ensure!(one.len() == other.len(), "outputs of {} and {} bytes", one.len(), other.len());
            if output.dtype() != Dtype::F32 {
                ensure!(one == other, "outputs that are no floats differ");
                continue;
            }
            for (one, other) in floats(one).zip(floats(other)) {
                differs.include(&self.of(one, other));
            }
        }
        Ok(differs)
    }

    fn of(self, one: f32, other: f32) -> Differs {
        // Also where both are the same infinity.
        if one == other || one.is_nan() && other.is_nan() {
            return Differs::default();
        }
        let by = (one - other).abs();
        if by.is_nan() {
            return Differs { by: f32::INFINITY, of_allowed: f32::INFINITY };
        }
        Differs { by, of_allowed: by / (self.0 + self.0 * other.abs()) }
    }
}

impl Differs {
    fn include(&mut self, other: &Self) {
        self.by = self.by.max(other.by);
        self.of_allowed = self.of_allowed.max(other.of_allowed);
    }

    fn judge(&self, bench: &Bench, what: &str, Tolerance(allowed): Tolerance) {
        let measured = format!("differs by {:.1e} at most, {:.3} of what may be", self.by, self.of_allowed);
        bench.judged(what, measured, format!("≤ {allowed:.0e} + {allowed:.0e} |x|"), self.of_allowed <= 1.0);
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// How often each operator is there; the first word of each is what it is.
fn counted(operators: &[String]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for operator in operators {
        *counts.entry(operator.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    if counts.is_empty() {
        return "none".to_owned();
    }
    let counts: Vec<String> = counts.iter().map(|(operator, count)| format!("{count} {operator}")).collect();
    counts.join(", ")
}
