//! From a model's bytes to its first answer; warm; and again after it has left the device.
//!
//! Models are examined before, as a server does it once at the upload. From a GPU, a model leaves for host memory, and comes
//! back from there; from a CPU, it leaves altogether.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use weir_gpu::{Job, Lease, ModelPolicy, ModelSource, Service, Tensor};

use crate::bench::Bench;
use crate::door;
use crate::models::{self, Case, MAGIKA, RESNET50, SMALL};
use crate::report::time;
use crate::table::{median, millis};

const WARM: usize = 10;
/// How long models stay in host memory.
const ON_HOST: Duration = Duration::from_secs(60);

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let models = bench.models();
    let cases =
        [models::perceptron(2048, 2), Ok(models::encoder(SMALL)), MAGIKA.case(models), RESNET50.case(models)];
    for case in cases {
        match case {
            Ok(case) => bench.attempt(case.name, || measure(bench, &service, &case)),
            Err(error) => bench.failed("a model", &error.to_string()),
        }
    }
    Ok(())
}

fn measure(bench: &Bench, service: &Service, case: &Case) -> anyhow::Result<()> {
    let policy = ModelPolicy { host_keep_alive: ON_HOST, ..ModelPolicy::default() };
    let mut source = door::model(case.name, case.bytes.clone(), policy);
    source.examined = Some(bench.block_on(service.inspect(&source))?.memory);
    let input = case.input(1, 1)?;
    let (cold, lease) = first(bench, service, &source, &input)?;
    let load = lease.load_time().map_or(f64::NAN, millis);
    let mut warm = vec![];
    for _ in 0..WARM {
        let asked = Instant::now();
        bench.infer(service, &lease, &input, Job::default())?;
        warm.push(millis(asked.elapsed()));
    }
    drop(lease);
    let is_on_host = leaves(service, case)?;
    let (again, lease) = first(bench, service, &source, &input)?;
    ensure!(lease.load_time().is_some(), "it was not loaded again");
    let from = if is_on_host { "host memory" } else { "its bytes" };
    let measured = format!(
        "{} cold, of which {} to load; {} warm; {} again, from {from}",
        time(cold),
        time(load),
        time(median(&warm)),
        time(again),
    );
    bench.judged(case.name, measured, "> 0".to_owned(), cold > 0.0 && again > 0.0);
    Ok(())
}

/// Milliseconds from the bytes to the first answer.
fn first(
    bench: &Bench,
    service: &Service,
    source: &ModelSource,
    input: &Tensor,
) -> anyhow::Result<(f64, Arc<Lease>)> {
    let asked = Instant::now();
    let lease = bench.load(service, "t", source)?;
    bench.infer(service, &lease, input, Job::default())?;
    Ok((millis(asked.elapsed()), lease))
}

/// Waits until the model has left the device; whether it is still in host memory.
fn leaves(service: &Service, case: &Case) -> anyhow::Result<bool> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let resident = service.stats().resident;
        let mut of_case = resident.iter().filter(|graph| *graph.digest == *case.name);
        if of_case.clone().all(|graph| graph.waits) {
            return Ok(of_case.next().is_some());
        }
        ensure!(Instant::now() < until, "it stays on the device though nobody holds it");
        std::thread::sleep(Duration::from_millis(2));
    }
}
