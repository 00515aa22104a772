//! What is taken before anybody has loaded anything, by a tenant that has loaded nothing, and by 32 tenants of one public
//! model.

use anyhow::{Context, ensure};
use weir_gpu::{DeviceStats, Job, ModelPolicy, ModelSource};

use crate::bench::{Bench, planned, pool_used};
use crate::door;
use crate::models;
use crate::report::size;

/// Tenants that load nothing.
const IDLE: u64 = 1000;
/// Tenants of one public model.
const SHARING: u64 = 32;
/// What they may take together: so many times what one takes.
const TIMES: f64 = 1.3;

pub fn run(bench: &Bench) -> anyhow::Result<()> {
    bench.attempt("the context", || context(bench));
    bench.attempt("a tenant that has loaded nothing", || idle(bench));
    bench.attempt("a public model", || shared(bench));
    Ok(())
}

fn context(bench: &Bench) -> anyhow::Result<()> {
    let what = "the context, streams and libraries, and other processes";
    if !bench.is_gpu() {
        bench.not_run(what, "needs a GPU");
        return Ok(());
    }
    let service = bench.service(&bench.config())?;
    let driver = bench.device(&service)?.driver.context("the driver says nothing of its memory")?;
    bench.told(what, format!("{} of {}", size(driver.context), size(driver.total)));
    Ok(())
}

fn idle(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let before = bench.at_rest(&service)?;
    let host_before = resident_bytes()?;
    for tenant in 0..IDLE {
        service.set_tenant(&format!("tenant-{tenant}"), bench.share(Some(1 << 20)));
    }
    let after = bench.at_rest(&service)?;
    let host = resident_bytes()?.saturating_sub(host_before) / IDLE;
    let books = planned(&after).abs_diff(planned(&before));
    let driver = pool_used(&after).unwrap_or(0).abs_diff(pool_used(&before).unwrap_or(0));
    let measured = format!(
        "{IDLE} of them: {books} B of the device in the books, {driver} B by its driver; {host} B of the host each"
    );
    bench.judged(
        "a tenant that has loaded nothing",
        measured,
        "0 B of the device".to_owned(),
        books == 0 && driver == 0,
    );
    Ok(())
}

fn shared(bench: &Bench) -> anyhow::Result<()> {
    let service = bench.service(&bench.config())?;
    let case = models::perceptron(1024, 2)?;
    let policy = ModelPolicy { public: true, ..ModelPolicy::default() };
    let source = door::model(case.name, case.bytes.clone(), policy);
    let before = bench.at_rest(&service)?;
    let mut leases = vec![];
    let mut use_it = |tenant: u64, source: &ModelSource| -> anyhow::Result<DeviceStats> {
        let lease = bench.load(&service, &format!("tenant-{tenant}"), source)?;
        bench.infer(&service, &lease, &case.input(1, tenant)?, Job::default())?;
        leases.push(lease);
        bench.at_rest(&service)
    };
    let one = use_it(0, &source)?;
    let mut all = one.clone();
    for tenant in 1..SHARING {
        all = use_it(tenant, &source)?;
    }
    let more = |of: fn(&DeviceStats) -> u64, after: &DeviceStats| of(after).saturating_sub(of(&before));
    let driver: fn(&DeviceStats) -> u64 = |device| pool_used(device).unwrap_or(0);
    let judge = |what: &str, of: fn(&DeviceStats) -> u64| -> anyhow::Result<()> {
        let (one, all) = (more(of, &one), more(of, &all));
        ensure!(one > 0, "one tenant takes nothing");
        let times = all as f64 / one as f64;
        let measured = format!("{} for {SHARING} tenants, {} for one: {times:.2}×", size(all), size(one));
        bench.judged(what, measured, format!("≤ {TIMES}×"), times <= TIMES);
        Ok(())
    };
    judge("a public model, by the books", planned)?;
    if bench.is_gpu() {
        judge("a public model, by the driver", driver)?;
    } else {
        bench.not_run("a public model, by the driver", "needs a GPU");
    }
    Ok(())
}

/// Bytes of this process that are in the machine's memory.
fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no line VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
