//! Jobs that need more memory than their tenant may have, than the device has in its books, and than it has in truth. Each
//! ends alone: a neighbour is answered all the time, and the device goes on.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::task::JoinSet;
use weir_gpu::{Error, Job, ModelPolicy, Service};

use crate::bench::{Bench, planned};
use crate::models;
use crate::report::size;
use crate::{cuda, door};

/// What the device may have, by its books.
const MEMORY: u64 = 1 << 30;
/// What the greedy tenant may have.
const QUOTA: u64 = 64 << 20;
/// What is left of a GPU's memory when the rest has been taken behind the books' back.
const LEFT: u64 = 512 << 20;
/// Bytes of a tensor that neither has. No tensor on a GPU may have 2 GiB.
const NEEDED: u64 = 3 << 29;
/// Floats that a row becomes in between.
const WIDTH: u64 = 4096;
/// Jobs that ask for too much.
const TRIES: u64 = 10;

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let what = "a job over its tenant's quota";
    bench.attempt(what, || {
        let service = bench.service(&bench.capped(MEMORY))?;
        service.set_tenant("greedy", bench.share(Some(QUOTA)));
        refuse(bench, &service, what, 2 * QUOTA, |error| matches!(error, Error::TenantMemory { .. }))
    });
    let what = "a job over the device's memory, by the books";
    bench.attempt(what, || {
        let service = bench.service(&bench.capped(MEMORY))?;
        refuse(bench, &service, what, NEEDED, |error| matches!(error, Error::DeviceMemory { .. }))
    });
    let what = "a job over the device's memory, by its driver";
    if !bench.is_gpu() {
        bench.not_run(what, "needs a GPU");
        return Ok(());
    }
    bench.attempt(what, || in_truth(bench, what));
    Ok(())
}

/// The books say that there is room; but it has been taken since they were last held against the driver.
fn in_truth(bench: &Bench, what: &str) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let free = bench.device(&service)?.driver.context("the driver says nothing of its memory")?.free;
    ensure!(free > 2 * NEEDED, "only {} are free", size(free));
    let outcome = Outcome::of(bench, &service, NEEDED, || cuda::hold(free - LEFT).map(Some))?;
    let is_of_memory = |error: &Error| {
        matches!(error, Error::DeviceMemory { .. } | Error::Engine(_) | Error::EnginePanic(_))
    };
    outcome.judge(bench, &service, what, is_of_memory)
}

fn refuse(
    bench: &Bench,
    service: &Service,
    what: &str,
    needed: u64,
    is_due: impl Fn(&Error) -> bool,
) -> anyhow::Result<()> {
    Outcome::of(bench, service, needed, || Ok(None))?.judge(bench, service, what, is_due)
}

/// What became of the greedy tenant's jobs, and of its neighbour's.
struct Outcome {
    greedy: Vec<Result<(), Error>>,
    /// One that asks for little, after them.
    modest: Result<(), Error>,
    answered: u64,
    failed: u64,
}

impl Outcome {
    /// `take` takes memory behind the books' back, and what it returns holds it while the greedy jobs run.
    fn of(
        bench: &Bench,
        service: &Service,
        needed: u64,
        take: impl FnOnce() -> anyhow::Result<Option<Box<dyn Any>>>,
    ) -> anyhow::Result<Self> {
        let source = |name: &str, bytes: &[u8]| door::model(name, bytes.to_vec(), ModelPolicy::default());
        let wide = models::widen(usize::try_from(WIDTH)?);
        let greedy = bench.load(service, "greedy", &source("wide", &wide.bytes))?;
        let run = |rows: u64| -> anyhow::Result<Result<(), Error>> {
            let input = wide.input(usize::try_from(rows)?, 1)?;
            Ok(bench.infer(service, &greedy, &input, Job::default()).map(|_| ()))
        };
        run(1)??;

        let small = models::perceptron(256, 2)?;
        let lease = bench.load(service, "neighbour", &source("small", &small.bytes))?;
        let input = small.input(1, 1)?;
        bench.infer(service, &lease, &input, Job::default())?;
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let stop = Arc::new(AtomicBool::new(false));
        let neighbour = {
            let (service, counts, stop) = (service.clone(), Arc::clone(&counts), Arc::clone(&stop));
            async move {
                let [answered, failed] = &*counts;
                while !stop.load(Ordering::Relaxed) {
                    let answer = door::infer(&service, &lease, &input, Job::default()).await;
                    let count = if answer.is_ok() { answered } else { failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        };
        // Ended with the set, if not before.
        let mut others = JoinSet::new();
        bench.block_on(async { others.spawn(neighbour) });
        let asked = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        let asks_again = || {
            let (before, until) = (asked(), Instant::now() + Duration::from_secs(5));
            while asked() < before + 5 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let held = take()?;
        let mut outcomes = vec![];
        for _ in 0..TRIES {
            outcomes.push(run(needed / 4 / WIDTH)?);
            asks_again();
        }
        drop(held);
        let modest = run(1)?;
        asks_again();
        stop.store(true, Ordering::Relaxed);
        while let Some(ended) = bench.block_on(others.join_next()) {
            ended?;
        }
        let [answered, failed] = &*counts;
        let (answered, failed) = (answered.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
        Ok(Self { greedy: outcomes, modest, answered, failed })
    }

    fn judge(
        &self,
        bench: &Bench,
        service: &Service,
        what: &str,
        is_due: impl Fn(&Error) -> bool,
    ) -> anyhow::Result<()> {
        let errors = || self.greedy.iter().filter_map(|outcome| outcome.as_ref().err());
        let due = errors().filter(|error| is_due(error)).count();
        let device = bench.at_rest(service)?;
        let told = errors().next().map_or_else(|| "it was answered".to_owned(), ToString::to_string);
        let Self { answered, failed, .. } = self;
        let measured = format!(
            "{due} of {TRIES} ended so ({told}); the neighbour was answered {answered} times, failed {failed}; then one \
             that asks for little was {}; {} in the books",
            if self.modest.is_ok() { "answered" } else { "refused" },
            size(planned(&device)),
        );
        let all_due = u64::try_from(due)? == TRIES;
        bench.judged(
            what,
            measured,
            "all of them end in an error of memory; no other fails".to_owned(),
            all_due && self.modest.is_ok() && *failed == 0 && *answered > TRIES && !device.failed,
        );
        Ok(())
    }
}
