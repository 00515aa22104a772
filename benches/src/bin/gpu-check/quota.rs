//! Random models, sizes and quotas of 64 tenants at once, while somebody reads the books all the time; and, when all are
//! quiet, the books against what the driver's allocator says.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use weir_gpu::{
    AccountStats, Batching, DeviceKind, DeviceStats, Error, Job, Keep, ModelPolicy, ModelSource, Service,
};

use crate::bench::{Bench, planned, pool_used};
use crate::door;
use crate::graphs::Encoder;
use crate::models::{self, Case};
use crate::report::size;

const TENANTS: u64 = 64;
/// After each of these, all are quiet.
const ROUNDS: u64 = 6;
const ROUND: Duration = Duration::from_millis(1500);
/// How far the driver's count may be above the books': parts of a hundred, and bytes.
const DRIFT: u64 = 5;
const SLACK: u64 = 64 << 20;

/// A model that is known, and its requests.
struct Known {
    case: Case,
    source: ModelSource,
}

/// What the tenants saw.
#[derive(Default)]
struct Tally {
    answered: u64,
    refused: u64,
    /// Errors that should not be, and one of them.
    wrong: u64,
    example: Option<String>,
}

/// What whoever reads the books saw.
#[derive(Default)]
struct Books {
    looks: u64,
    overruns: u64,
    unbalanced: u64,
}

/// The books against the driver, when nothing runs.
#[derive(Default)]
struct Drift {
    looks: u64,
    missed: u64,
    /// Bytes that the driver counts and the books do not, and the other way round, at most.
    above: u64,
    below: u64,
}

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    // Bytes of the smallest model's weights.
    let width: usize = if bench.is_gpu() { 1024 } else { 64 };
    let unit = u64::try_from(width * width * 4)?;
    let mut config = bench.capped(256 * unit);
    config.cpu_lanes = NonZeroUsize::new(4);
    // So that jobs make way while they hold memory.
    config.sharing.quantum = Duration::from_micros(50);
    let service = bench.service(&config)?;
    let known = Arc::new(known(bench, &service, width)?);
    for tenant in 0..TENANTS {
        let quota = (!tenant.is_multiple_of(3)).then(|| (2 + tenant * 7 % 30) * unit);
        service.set_tenant(&name(tenant), bench.share(quota));
    }
    let before = bench.at_rest(&service)?;

    let stop = Arc::new(AtomicBool::new(false));
    let reader = bench.spawn(read(service.clone(), Arc::clone(&stop)));
    let (mut tally, mut drift) = (Tally::default(), Drift::default());
    for round in 0..ROUNDS {
        let until = Instant::now() + ROUND;
        let tenants = (0..TENANTS).map(|tenant| {
            let (service, known) = (service.clone(), Arc::clone(&known));
            let seed = round * TENANTS + tenant;
            tokio::spawn(ask(service, bench.kind, name(tenant), known, seed, until))
        });
        for seen in bench.block_on(async { join_all(tenants).await }) {
            tally.include(seen?);
        }
        drift.look(bench, &service)?;
    }
    stop.store(true, Ordering::Relaxed);
    let books = bench.block_on(reader)?;
    judge(bench, &tally, &books, &drift);

    bench.unload(&service)?;
    let (planned_before, pool_before) = (planned(&before), pool_used(&before));
    let after = settled(bench, &service, |device| {
        planned(device) == planned_before && pool_used(device) <= pool_before.map(|bytes| bytes + SLACK)
    })?;
    let by_driver = pool_used(&after).zip(pool_before);
    let told = by_driver.map(|(after, before)| format!("; driver {}, before {}", size(after), size(before)));
    bench.judged(
        "all unloaded",
        format!("books {} B, before {planned_before} B{}", planned(&after), told.unwrap_or_default()),
        format!("books as before; driver at most {} more", size(SLACK)),
        planned(&after) == planned_before && pool_used(&after) <= pool_before.map(|bytes| bytes + SLACK),
    );
    Ok(())
}

fn judge(bench: &Bench, tally: &Tally, books: &Books, drift: &Drift) {
    let Tally { answered, refused, wrong, example } = tally;
    let Books { looks, overruns, unbalanced } = books;
    let measured = format!(
        "{overruns} overruns, {unbalanced} times unbalanced in {looks} looks; {answered} answered, {refused} refused, \
         {wrong} wrongly{}",
        example.as_ref().map(|error| format!(": {error}")).unwrap_or_default(),
    );
    let kept = (*overruns, *unbalanced, *wrong) == (0, 0, 0) && *looks > 0;
    bench.judged(
        &format!("quotas of {TENANTS} tenants"),
        measured,
        "0 of each wrong; some answered, some refused".to_owned(),
        // Where nobody is refused, no quota was tried.
        kept && *answered > 0 && *refused > 0,
    );
    let what = "the books against the driver";
    if !bench.is_gpu() {
        bench.not_run(what, "needs a GPU");
        return;
    }
    let measured = format!(
        "{} quiet looks: the driver counts at most {} more, {} less",
        drift.looks,
        size(drift.above),
        size(drift.below),
    );
    let bound = format!("at most {DRIFT} % + {} more", size(SLACK));
    bench.judged(what, measured, bound, drift.looks > 0 && drift.missed == 0);
}

/// Perceptrons of 1 to 16 units of weights, and a transformer.
fn known(bench: &Bench, service: &Service, width: usize) -> anyhow::Result<Vec<Known>> {
    // Three units of weights.
    let encoder = Encoder { tokens: 16, width: width / 2, heads: 4, layers: 1 };
    let mut cases = vec![models::encoder(encoder)];
    for (times, layers) in [(1, 1), (1, 3), (2, 1), (2, 2), (4, 1)] {
        cases.push(models::perceptron(width * times, layers)?);
    }
    let known = cases.into_iter().enumerate().map(|(number, case)| {
        // The third one is everybody's.
        let policy = ModelPolicy { public: number == 2, ..ModelPolicy::default() };
        let mut source = door::model(&format!("m{number}"), case.bytes.clone(), policy);
        source.examined = Some(bench.block_on(service.inspect(&source))?.memory);
        anyhow::Ok(Known { case, source })
    });
    known.collect()
}

fn name(tenant: u64) -> String {
    format!("t{tenant}")
}

/// A tenant that asks again as soon as it is answered or refused.
async fn ask(
    service: Service,
    kind: DeviceKind,
    tenant: String,
    known: Arc<Vec<Known>>,
    seed: u64,
    until: Instant,
) -> Tally {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tally = Tally::default();
    while Instant::now() < until {
        let chosen = rng.usize(..known.len().max(1));
        let Some(chosen) = known.get(chosen) else { break };
        match turn(&service, kind, &tenant, chosen, &mut rng).await {
            Ok(()) => tally.answered += 1,
            Err(
                Error::TenantMemory { requested, used, limit, .. }
                | Error::DeviceMemory { requested, used, limit },
            ) if used.saturating_add(requested) > limit => tally.refused += 1,
            Err(other) => {
                tally.wrong += 1;
                tally.example.get_or_insert_with(|| other.to_string());
            }
        }
    }
    tally
}

async fn turn(
    service: &Service,
    kind: DeviceKind,
    tenant: &str,
    chosen: &Known,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    let mut minute_or_nothing = || Duration::from_secs(if rng.bool() { 60 } else { 0 });
    let keep = Keep { keep_alive: minute_or_nothing(), ..Keep::default() };
    let host_keep_alive = minute_or_nothing();
    let max_queue_delay = Duration::from_micros(200);
    let batching = Batching { max_batch: rng.u64(1..=4), max_queue_delay, ..Batching::default() };
    let public = chosen.source.policy.public;
    let policy = ModelPolicy { public, keep, host_keep_alive, batching: Arc::new(batching) };
    let source = ModelSource { policy, ..chosen.source.clone() };
    let lease = service.load(tenant, &source, kind).await?;
    let input = chosen.case.input(rng.usize(1..=9), rng.u64(..));
    let input = input.map_err(|error| Error::InvalidTensor(error.to_string()))?;
    let call = door::infer(service, &lease, &input, Job::default());
    if rng.u8(..11) == 0 {
        // One that leaves at once.
        return call.now_or_never().map_or(Ok(()), |answer| answer.map(|_| ()));
    }
    call.await.map(|_| ())
}

/// Reads the books until it is told to stop.
async fn read(service: Service, stop: Arc<AtomicBool>) -> Books {
    let mut books = Books::default();
    while !stop.load(Ordering::Relaxed) {
        for device in service.stats().devices {
            books.read(&device);
        }
        tokio::task::yield_now().await;
    }
    books
}

impl Books {
    fn read(&mut self, device: &DeviceStats) {
        let memory = &device.memory;
        let sum: u64 = memory.accounts.iter().map(AccountStats::total).sum();
        let over = |account: &&AccountStats| account.quota.is_some_and(|quota| account.total() > quota);
        self.looks += 1;
        self.unbalanced += u64::from(sum != memory.used);
        self.overruns += u64::from(memory.used > memory.capacity);
        self.overruns += memory.accounts.iter().filter(over).map(|_| 1).sum::<u64>();
    }
}

impl Tally {
    fn include(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.example = self.example.take().or(other.example);
    }
}

impl Drift {
    fn look(&mut self, bench: &Bench, service: &Service) -> anyhow::Result<()> {
        let allowed = |device: &DeviceStats| planned(device) + planned(device) * DRIFT / 100 + SLACK;
        let device =
            settled(bench, service, |device| pool_used(device).is_none_or(|used| used <= allowed(device)))?;
        let Some(used) = pool_used(&device) else { return Ok(()) };
        self.looks += 1;
        self.missed += u64::from(used > allowed(&device));
        self.above = self.above.max(used.saturating_sub(planned(&device)));
        self.below = self.below.max(planned(&device).saturating_sub(used));
        Ok(())
    }
}

/// The device at rest, as soon as it is `right`, or a second later: what is let go is let go in the order of a stream.
fn settled(
    bench: &Bench,
    service: &Service,
    right: impl Fn(&DeviceStats) -> bool,
) -> anyhow::Result<DeviceStats> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        let device = bench.at_rest(service)?;
        if right(&device) || Instant::now() >= until {
            return Ok(device);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
