//! `weir simulate`: the scheduler over a trace, without a server and without a device. It is the same code that decides on
//! a server; see `weir_gpu::simulate`.

mod policy;
mod trace;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use weir::units::span;
use weir_gpu::simulate::trace::{Flood, Load, generate};
use weir_gpu::simulate::{ModelReport, Policy, Refusal, Report, TenantReport, Totals, simulate};

use super::client::Failure;
use super::output;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Simulate {
    #[command(subcommand)]
    action: Option<Action>,
    /// The requests (CSV: time,tenant,model,rows,class), in the order of their times; - for stdin
    #[arg(long, value_name = "FILE", required = true)]
    trace: Option<PathBuf>,
    /// The device, the tenants and the models (TOML); docs/simulator.md has every value. The defaults if not given
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// First come, first served, whatever the policy says: to compare with
    #[arg(long)]
    fifo: bool,
    /// Print JSON instead of tables: nanoseconds, and thousandths of a whole
    #[arg(long)]
    json: bool,
    /// So many tenants and models are shown: those with the most device time, and the most loads
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
}

#[derive(Subcommand)]
enum Action {
    /// Make up a trace of many tenants' functions, most of which are called very rarely
    Generate(Generate),
}

#[derive(Args)]
struct Generate {
    /// Functions, each with a model of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    functions: u32,
    /// Tenants, to whom the functions are dealt out in turn
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    tenants: u32,
    /// How much time the trace covers
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = span::parse)]
    duration: Duration,
    /// Calls per second of all functions together
    #[arg(long, value_name = "RATE", default_value_t = 200.0, value_parser = rate)]
    rate: f64,
    /// Calls that come at one moment, on average
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// Percent of the calls that are critical
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    critical: u8,
    /// Percent of the calls that are of the batch class
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    batch: u8,
    /// A tenant that calls one model so many times per second, beside the others
    #[arg(long, value_name = "TENANT:MODEL:RATE", value_parser = flood)]
    flood: Option<Flood>,
    /// Another seed gives another trace, the same one the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| format!("`{text}` is not a number of calls per second"))
}

fn flood(text: &str) -> Result<Flood, String> {
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(model), Some(calls), None) if !tenant.is_empty() && !model.is_empty() => {
            Ok(Flood { tenant: tenant.into(), model: model.into(), rate: rate(calls)? })
        }
        _ => Err(format!("`{text}` is not TENANT:MODEL:RATE, such as noisy:large:80")),
    }
}

impl Simulate {
    pub fn run(self) -> Result<(), Failure> {
        if let Some(Action::Generate(generate)) = self.action {
            return generate.run();
        }
        let path = self.trace.unwrap_or_default();
        let mut policy = read_policy(self.policy.as_deref())?;
        policy.device.fifo |= self.fifo;
        let failed = |error: String| Failure::Local(format!("{}: {error}", path.display()));
        let mut trace = trace::Trace::open(open(&path)?).map_err(failed)?;
        let report = simulate(&policy, trace.by_ref());
        trace.whole().map_err(failed)?;
        if self.json {
            output::json(&json!(report));
        } else {
            show(&report, self.top);
        }
        Ok(())
    }
}

impl Generate {
    fn run(self) -> Result<(), Failure> {
        let Self { functions, tenants, duration, rate, burst, critical, batch, flood, seed } = self;
        if critical.saturating_add(batch) > 100 {
            return Err(Failure::Usage(
                "--critical and --batch are more than 100 percent together".to_owned(),
            ));
        }
        let load = Load { functions, tenants, duration, rate, burst, critical, batch, flood };
        match trace::write(io::stdout().lock(), generate(&load, seed)) {
            // The reader has what it wants (`| head`).
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::Local(format!("the trace cannot be written: {error}"))),
            Ok(()) => Ok(()),
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path);
    let file = file.map_err(|error| Failure::Local(format!("{} cannot be read: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The policy of a file; without one, that of an empty file.
fn read_policy(path: Option<&Path>) -> Result<Policy, Failure> {
    let Some(path) = path else { return policy::parse("").map_err(Failure::Local) };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::Local(format!("{} cannot be read: {error}", path.display())))?;
    policy::parse(&text).map_err(|error| Failure::Local(format!("{}: {error}", path.display())))
}

fn show(report: &Report, top: usize) {
    let Report { totals, tenants, models } = report;
    for line in summary(totals) {
        output::line(line);
    }
    let mut by_time: Vec<&TenantReport> = tenants.iter().collect();
    by_time.sort_by_key(|tenant| std::cmp::Reverse((tenant.device_time, tenant.requests)));
    output::line("");
    output::table(
        [
            "TENANT",
            "REQUESTS",
            "ANSWERED",
            "WAIT P50",
            "P99",
            "LATENCY P50",
            "P99",
            "SHARE",
            "LOADS",
            "REFUSED",
        ],
        by_time.iter().take(top).map(|tenant| {
            [
                tenant.tenant.clone(),
                tenant.requests.to_string(),
                tenant.answered.to_string(),
                time(tenant.wait.p50),
                time(tenant.wait.p99),
                time(tenant.latency.p50),
                time(tenant.latency.p99),
                percent(tenant.share),
                tenant.loads.to_string(),
                reasons(&tenant.refused),
            ]
        }),
    );
    more(tenants.len(), top, "tenants");
    let mut by_loads: Vec<&ModelReport> = models.iter().filter(|model| model.loads > 1).collect();
    if by_loads.is_empty() {
        return;
    }
    by_loads.sort_by_key(|model| std::cmp::Reverse(model.loads));
    output::line("");
    output::table(
        ["MODEL", "OWNER", "LOADS", "HITS", "EVICTED", "UNLOADED"],
        by_loads.iter().take(top).map(|model| {
            [
                model.model.clone(),
                model.owner.clone(),
                model.loads.to_string(),
                model.hits.to_string(),
                model.evictions.to_string(),
                model.unloads.to_string(),
            ]
        }),
    );
    more(by_loads.len(), top, "models that were loaded more than once");
}

fn summary(totals: &Totals) -> [String; 4] {
    let Totals { requests, answered, refused, elapsed, device_time, utilisation, .. } = totals;
    let Totals { loads, evictions, unloads, hit_rate, jobs, batches, rows, padding, .. } = totals;
    let Totals { suspensions, overtaken, .. } = totals;
    // Rows in tenths of a job.
    let mean = rows.saturating_mul(10) / jobs.max(&1);
    let (whole, tenths) = (mean / 10, mean % 10);
    [
        format!(
            "{requests} requests in {}: {answered} answered; refused: {}",
            time(*elapsed),
            reasons(refused)
        ),
        format!("lanes: {} of their time used, {} in all", percent(*utilisation), time(*device_time)),
        format!(
            "jobs: {jobs} of {whole}.{tenths} rows on average ({padding} rows of zeros), {batches} of them batches; made \
             way {suspensions} times; {overtaken} requests overtaken"
        ),
        format!(
            "graphs: {} of requests found theirs; {loads} loads, {evictions} evictions, {unloads} unloads",
            percent(*hit_rate)
        ),
    ]
}

fn more(all: usize, top: usize, what: &str) {
    if let Some(rest) = all.checked_sub(top).filter(|rest| *rest > 0) {
        output::line(format!("and {rest} more {what}: --top {all}"));
    }
}

/// Refusals by reason, or a dash.
fn reasons(refused: &BTreeMap<Refusal, u64>) -> String {
    let reasons = refused.iter().map(|(why, count)| format!("{count} {}", output::text(&json!(why))));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    if reasons.is_empty() { "-".to_owned() } else { reasons }
}

fn percent(thousandths: u64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

/// Nanoseconds as people read them: in the largest unit that there is one of, cut after two digits.
fn time(nanos: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(unit, _)| nanos >= *unit) {
        Some((unit, name)) => format!("{}.{:02}{name}", nanos / unit, nanos % unit / (unit / 100)),
        None => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            ["0ns", "999ns", "1.00us", "1.99ms", "61.05s"],
            [0, 999, 1000, 1_999_999, 61_050_000_000].map(time)
        );
        assert_eq!(percent(7), "0.7%");
        let refused = BTreeMap::from([(Refusal::TenantQueueFull, 3), (Refusal::QueueTimeout, 1)]);
        assert_eq!(reasons(&refused), "3 tenant_queue_full, 1 queue_timeout");
    }

    #[test]
    fn a_flood_is_a_tenant_a_model_and_a_rate() {
        let expected = Flood { tenant: "noisy".into(), model: "large".into(), rate: 0.5 };
        assert_eq!(flood("noisy:large:0.5").unwrap(), expected);
        for text in ["noisy", "noisy:large", "noisy:large:-1", "noisy:large:NaN", ":large:1", "a:b:1:2"] {
            assert!(flood(text).unwrap_err().contains('`'), "{text}");
        }
    }
}
