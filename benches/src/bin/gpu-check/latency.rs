//! Warm latency through the door against the direct engine, on the same device, in pairs: whatever else the machine does, it
//! does to both.

use std::time::{Duration, Instant};

use weir_gpu::{Job, ModelPolicy, Service};

use crate::bench::Bench;
use crate::door;
use crate::models::{self, Case, MAGIKA, SMALL};
use crate::report::time;
use crate::table::{median, millis, quantile};
use crate::twin::Twin;

const PAIRS: usize = 300;
/// How many of them there are even where they take longer than [`SPAN`].
const LEAST: usize = 20;
const SPAN: Duration = Duration::from_secs(8);

/// What the door may take: so many times the direct engine's time, and so many milliseconds beside.
const TIMES: f64 = 1.5;
const BESIDE: f64 = 0.2;

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    for case in [MAGIKA.case(bench.models()), models::perceptron(512, 3), Ok(models::encoder(SMALL))] {
        match case {
            Ok(case) => bench.attempt(case.name, || measure(bench, &service, &case)),
            Err(error) => bench.failed("a model", &error.to_string()),
        }
    }
    Ok(())
}

fn measure(bench: &Bench, service: &Service, case: &Case) -> anyhow::Result<()> {
    let input = case.input(1, 1)?;
    let lease =
        bench.load(service, "t", &door::model(case.name, case.bytes.clone(), ModelPolicy::default()))?;
    let twin = Twin::new(bench.kind, case, &input)?;
    let by_door = || {
        let asked = Instant::now();
        bench.infer(service, &lease, &input, Job::default())?;
        anyhow::Ok(millis(asked.elapsed()))
    };
    let direct = || {
        let asked = Instant::now();
        twin.run()?;
        anyhow::Ok(millis(asked.elapsed()))
    };
    // Plans are made and threads started by the first ones, which do not count.
    for _ in 0..10 {
        by_door()?;
        direct()?;
    }
    let (mut door, mut engine) = (vec![], vec![]);
    let until = Instant::now() + SPAN;
    for pair in 0..PAIRS {
        if pair >= LEAST && Instant::now() >= until {
            break;
        }
        // Whoever follows the other finds the caches as that one left them.
        if pair % 2 == 0 {
            door.push(by_door()?);
            engine.push(direct()?);
        } else {
            engine.push(direct()?);
            door.push(by_door()?);
        }
    }
    let (of_door, of_engine) = (median(&door), median(&engine));
    let most = of_engine * TIMES + BESIDE;
    let measured = format!(
        "p50 {} against {} ({:.2}×); p99 {} against {} ({:.2}×); {} pairs",
        time(of_door),
        time(of_engine),
        of_door / of_engine,
        time(quantile(&door, 0.99)),
        time(quantile(&engine, 0.99)),
        quantile(&door, 0.99) / quantile(&engine, 0.99),
        door.len(),
    );
    let bound = format!("p50 ≤ {} ({TIMES}× + {})", time(most), time(BESIDE));
    bench.judged(case.name, measured, bound, of_door <= most);
    Ok(())
}
