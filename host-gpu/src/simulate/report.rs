//! What a simulation came to. All in integers: nanoseconds, bytes, and thousandths where a part of a whole is meant.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::memory::Key;
use crate::Class;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// As many requests as may wait for the device did.
    QueueFull,
    /// As many requests of its tenant as may wait for the device did.
    TenantQueueFull,
    /// It waited for a lane as long as it may.
    QueueTimeout,
    /// It was known that it would not be done in time.
    DeadlineTooSoon,
    /// It was not done in time.
    DeadlineExceeded,
    /// Its graph does not fit into its tenant's part of the memory, nor can it be made to.
    TenantMemory,
    /// Its graph does not fit into the device's memory, nor can it be made to.
    DeviceMemory,
}

/// Nanoseconds that so many of a hundred were not above, by nearest rank; 0 where there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Quantiles {
    fn of(times: &mut [u64]) -> Self {
        times.sort_unstable();
        let rank = |percent: usize| {
            let rank = times.len().saturating_mul(percent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { p50: rank(50), p99: rank(99), max: rank(100) }
    }
}

/// What a tenant got.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TenantReport {
    pub tenant: String,
    /// `answered` and `refused` together.
    pub requests: u64,
    pub answered: u64,
    pub refused: BTreeMap<Refusal, u64>,
    /// Of those answered: from the arrival to the first operator, also while its graph was loaded.
    pub wait: Quantiles,
    /// Of those answered: from the arrival to the answer.
    pub latency: Quantiles,
    /// Nanoseconds of lanes, those of jobs that were not answered included.
    pub device_time: u64,
    /// Thousandths of all device time.
    pub share: u64,
    /// Loads that its requests caused.
    pub loads: u64,
}

/// What became of a model's graph.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ModelReport {
    /// `system` for a public one.
    pub owner: String,
    pub model: String,
    pub loads: u64,
    /// Requests whose graph was there or on its way.
    pub hits: u64,
    /// Times that it made room.
    pub evictions: u64,
    /// Times that it went by itself.
    pub unloads: u64,
}

/// What the device did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    pub requests: u64,
    pub answered: u64,
    pub refused: BTreeMap<Refusal, u64>,
    /// Nanoseconds from the first arrival to the last answer or refusal.
    pub elapsed: u64,
    /// Nanoseconds of lanes.
    pub device_time: u64,
    /// Thousandths of the time of all lanes that they were used.
    pub utilisation: u64,
    pub loads: u64,
    pub hits: u64,
    /// Thousandths of the requests that found their graph there or on its way.
    pub hit_rate: u64,
    pub evictions: u64,
    pub unloads: u64,
    /// Jobs that began.
    pub jobs: u64,
    /// Those of them with more than one request.
    pub batches: u64,
    /// Rows of all jobs, rows of zeros included.
    pub rows: u64,
    /// Rows of zeros.
    pub padding: u64,
    /// How often a job made way.
    pub suspensions: u64,
    /// Requests that began after a later one of the same tenant, model and class.
    pub overtaken: u64,
}

/// What a simulation came to. Tenants and models are in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    pub totals: Totals,
    pub tenants: Vec<TenantReport>,
    pub models: Vec<ModelReport>,
}

#[derive(Default)]
struct Tenant {
    report: TenantReport,
    waits: Vec<u64>,
    latencies: Vec<u64>,
}

/// Counts while a simulation runs.
#[derive(Default)]
pub(super) struct Tally {
    pub totals: Totals,
    tenants: BTreeMap<Arc<str>, Tenant>,
    models: BTreeMap<Key, ModelReport>,
    /// The latest request that has begun.
    begun: HashMap<(Class, Arc<str>, Arc<str>), u64>,
    first: Option<u64>,
    last: u64,
}

impl Tally {
    pub fn arrives(&mut self, tenant: &Arc<str>, now: u64) {
        self.first.get_or_insert(now);
        self.last = now;
        self.tenant(tenant).requests += 1;
    }

    pub fn begins(&mut self, request: u64, class: Class, tenant: &Arc<str>, model: &Arc<str>) {
        let latest = self.begun.entry((class, Arc::clone(tenant), Arc::clone(model))).or_default();
        self.totals.overtaken += u64::from(request < *latest);
        *latest = request.max(*latest);
    }

    /// A lane was used until now.
    pub fn uses(&mut self, nanos: u64, now: u64) {
        self.last = now;
        self.totals.device_time = self.totals.device_time.saturating_add(nanos);
    }

    pub fn answers(&mut self, tenant: &Arc<str>, wait: u64, latency: u64, now: u64) {
        self.last = now;
        let tenant = self.tenants.entry(Arc::clone(tenant)).or_default();
        tenant.report.answered += 1;
        tenant.waits.push(wait);
        tenant.latencies.push(latency);
    }

    pub fn refuses(&mut self, tenant: &Arc<str>, why: Refusal, now: u64) {
        self.last = now;
        *self.tenant(tenant).refused.entry(why).or_default() += 1;
        *self.totals.refused.entry(why).or_default() += 1;
    }

    pub fn tenant(&mut self, tenant: &Arc<str>) -> &mut TenantReport {
        &mut self.tenants.entry(Arc::clone(tenant)).or_default().report
    }

    pub fn model(&mut self, key: &Key) -> &mut ModelReport {
        self.models.entry(key.clone()).or_default()
    }

    pub fn report(self, lanes: usize) -> Report {
        let Self { mut totals, tenants, models, first, last, .. } = self;
        let tenants: Vec<TenantReport> = tenants
            .into_iter()
            .map(|(name, Tenant { report, mut waits, mut latencies })| TenantReport {
                tenant: name.to_string(),
                wait: Quantiles::of(&mut waits),
                latency: Quantiles::of(&mut latencies),
                share: thousandths(report.device_time, totals.device_time.into()),
                ..report
            })
            .collect();
        let models: Vec<ModelReport> = models
            .into_iter()
            .map(|(Key { owner, model }, report)| ModelReport {
                owner: owner.to_string(),
                model: model.to_string(),
                ..report
            })
            .collect();
        let sum = |of: fn(&ModelReport) -> u64| models.iter().map(of).sum::<u64>();
        totals.requests = tenants.iter().map(|tenant| tenant.requests).sum();
        totals.answered = tenants.iter().map(|tenant| tenant.answered).sum();
        totals.elapsed = last - first.unwrap_or(last);
        let lane_time = u128::from(totals.elapsed) * u128::try_from(lanes).unwrap_or(1);
        totals.utilisation = thousandths(totals.device_time, lane_time);
        totals.loads = sum(|model| model.loads);
        totals.hits = sum(|model| model.hits);
        totals.hit_rate = thousandths(totals.hits, u128::from(totals.hits) + u128::from(totals.loads));
        totals.evictions = sum(|model| model.evictions);
        totals.unloads = sum(|model| model.unloads);
        Report { totals, tenants, models }
    }
}

fn thousandths(part: u64, whole: u128) -> u64 {
    u64::try_from(u128::from(part) * 1000 / whole.max(1)).unwrap_or(u64::MAX)
}
