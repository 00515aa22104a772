//! Metrics: every name in one file. Prometheus text at `/metrics`.

mod health;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use weir_gpu::{Cost, Stats};

use crate::limits::Limit;
use crate::meter::record::Outcome;
use crate::sandbox::memory::NodeMemory;

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.name(), encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabels {
    bound: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    device: String,
    tenant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemoryLabels {
    device: String,
    tenant: String,
    kind: &'static str,
}

/// A count that the devices keep themselves.
type Kept = Counter<u64, AtomicU64>;

/// The server's metrics.
pub struct Telemetry {
    registry: Registry,
    /// Held while the devices' counts are taken over and shown, so that two who ask at once see whole ones.
    shown: Mutex<()>,
    limits: Family<LimitLabels, Counter>,
    budgets_over: Family<BoundLabels, gauge::Gauge>,
    egress_refused: Counter,
    memory: gauge::Gauge,
    host_bytes: gauge::Gauge,
    connections: gauge::Gauge,
    calls: Family<CallLabels, Counter>,
    call_seconds: Histogram,
    cold_starts: Counter,
    cold_start_seconds: Family<PhaseLabels, Histogram>,
    sandboxes: gauge::Gauge,
    sandboxes_started: Counter,
    awake: gauge::Gauge,
    queue_seconds: Histogram,
    device_seconds: Histogram,
    resident_graphs: gauge::Gauge,
    device_memory: gauge::Gauge,
    tenant_device_memory: Family<MemoryLabels, gauge::Gauge>,
    tenant_device_seconds: Family<TenantLabels, Counter<f64, AtomicU64>>,
    graph_loads: Kept,
    graph_hits: Kept,
    graph_evictions: Kept,
    busy_lanes: gauge::Gauge,
    queued_jobs: gauge::Gauge,
    suspended_jobs: gauge::Gauge,
    suspensions: Kept,
    batches: Kept,
    batched_requests: Kept,
    operators: Kept,
    health: health::Health,
}

/// A thing that is counted while it lives.
pub struct Gauge(gauge::Gauge);

impl Gauge {
    fn new(gauge: &gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// From 10 µs to about 84 s, each bucket twice the one before.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.00001, 2.0, 24))
}

impl Default for Telemetry {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir");
        let limits = Family::default();
        registry.register("limits", "Limits that were met, by setting", limits.clone());
        let budgets_over = Family::default();
        registry.register("budgets_over", "Tenants over a bound of their budget", budgets_over.clone());
        let egress_refused = Counter::default();
        registry.register("egress_refused", "Outgoing requests refused", egress_refused.clone());
        let memory = gauge::Gauge::default();
        registry.register(
            "memory_bytes",
            "Memory of all sandboxes: their own and what the host keeps for them",
            memory.clone(),
        );
        let host_bytes = gauge::Gauge::default();
        registry.register("host_bytes", "Bytes that the host keeps for sandboxes", host_bytes.clone());
        let connections = gauge::Gauge::default();
        registry.register("connections", "Connections of clients", connections.clone());
        let calls = Family::default();
        registry.register("calls", "Calls by outcome", calls.clone());
        let call_seconds = seconds();
        registry.register(
            "call_seconds",
            "Time from request to the head of the response",
            call_seconds.clone(),
        );
        let cold_starts = Counter::default();
        registry.register("cold_starts", "Revisions that woke from zero", cold_starts.clone());
        let cold_start_seconds = Family::<PhaseLabels, Histogram>::new_with_constructor(seconds);
        registry.register(
            "cold_start_seconds",
            "Time of a cold start's phases: code is mapped, a sandbox made, a graph loaded",
            cold_start_seconds.clone(),
        );
        let sandboxes = gauge::Gauge::default();
        registry.register("sandboxes", "Sandboxes that exist", sandboxes.clone());
        let sandboxes_started = Counter::default();
        registry.register("sandboxes_started", "Sandboxes made", sandboxes_started.clone());
        let awake = gauge::Gauge::default();
        registry.register("awake_revisions", "Revisions with their code mapped", awake.clone());
        let queue_seconds = seconds();
        registry.register(
            "inference_queue_seconds",
            "Time that a job waited for a lane",
            queue_seconds.clone(),
        );
        let device_seconds = seconds();
        registry.register("inference_device_seconds", "Time that a job held a lane", device_seconds.clone());
        let resident_graphs = gauge::Gauge::default();
        registry.register("resident_graphs", "Graphs in memory", resident_graphs.clone());
        let device_memory = gauge::Gauge::default();
        registry.register(
            "device_memory_bytes",
            "Memory that models and jobs have planned, over all devices",
            device_memory.clone(),
        );
        let tenant_device_memory = Family::default();
        registry.register(
            "tenant_device_memory_bytes",
            "Memory that models and jobs have planned, by device, tenant and kind; what is no tenant's is `system`",
            tenant_device_memory.clone(),
        );
        let tenant_device_seconds = Family::default();
        registry.register(
            "tenant_device_seconds",
            "Time that tenants' jobs held lanes, by device, as it was measured",
            tenant_device_seconds.clone(),
        );
        let graph_loads = Counter::default();
        registry.register("graph_loads", "Graphs loaded", graph_loads.clone());
        let graph_hits = Counter::default();
        registry.register("graph_hits", "Graphs found in memory, or on their way", graph_hits.clone());
        let graph_evictions = Counter::default();
        registry.register(
            "graph_evictions",
            "Idle graphs that made room for others",
            graph_evictions.clone(),
        );
        let busy_lanes = gauge::Gauge::default();
        registry.register("busy_lanes", "Lanes in use, over all devices", busy_lanes.clone());
        let queued_jobs = gauge::Gauge::default();
        registry.register("queued_jobs", "Jobs waiting for a lane, over all devices", queued_jobs.clone());
        let suspended_jobs = gauge::Gauge::default();
        registry.register(
            "suspended_jobs",
            "Jobs that have begun and made way, over all devices",
            suspended_jobs.clone(),
        );
        let suspensions = Counter::default();
        registry.register("suspensions", "Times that a job made way", suspensions.clone());
        let batches = Counter::default();
        registry.register("batches", "Jobs of more than one request", batches.clone());
        let batched_requests = Counter::default();
        registry.register("batched_requests", "Requests that rode in those", batched_requests.clone());
        let operators = Counter::default();
        registry.register("operators", "Operators run", operators.clone());
        let health = health::Health::default();
        health.register(&mut registry);
        Self {
            registry,
            shown: Mutex::default(),
            limits,
            budgets_over,
            egress_refused,
            memory,
            host_bytes,
            connections,
            calls,
            call_seconds,
            cold_starts,
            cold_start_seconds,
            sandboxes,
            sandboxes_started,
            awake,
            queue_seconds,
            device_seconds,
            resident_graphs,
            device_memory,
            tenant_device_memory,
            tenant_device_seconds,
            graph_loads,
            graph_hits,
            graph_evictions,
            busy_lanes,
            queued_jobs,
            suspended_jobs,
            suspensions,
            batches,
            batched_requests,
            operators,
            health,
        }
    }
}

impl Telemetry {
    /// A call ended, its answer's body included.
    pub fn call(&self, outcome: Outcome) {
        self.calls.get_or_create(&CallLabels { outcome }).inc();
    }

    /// So many tenants are over a soft bound of their budget and no hard one, and over a hard one.
    pub fn budgets(&self, [soft, hard]: [u64; 2]) {
        for (bound, over) in [("soft", soft), ("hard", hard)] {
            let over = i64::try_from(over).unwrap_or(i64::MAX);
            self.budgets_over.get_or_create(&BoundLabels { bound }).set(over);
        }
    }

    /// A limit was met.
    pub fn limit(&self, limit: Limit) {
        self.limits.get_or_create(&LimitLabels { limit: limit.field() }).inc();
    }

    /// An outgoing request was refused.
    pub fn egress_refused(&self) {
        self.egress_refused.inc();
    }

    /// Counts a connection while the answer lives.
    pub fn connection(&self) -> Gauge {
        Gauge::new(&self.connections)
    }

    /// The head of a call's answer, or its problem, is on its way.
    pub fn call_head(&self, took: Duration) {
        self.call_seconds.observe(took.as_secs_f64());
    }

    /// A revision woke: its code was mapped and linked.
    pub fn cold_start_code(&self, took: Duration) {
        self.cold_starts.inc();
        self.phase("code", took);
    }

    /// The first sandbox of a revision that woke.
    pub fn cold_start_sandbox(&self, took: Duration) {
        self.phase("sandbox", took);
    }

    /// A graph was loaded because a guest asked for it.
    pub fn cold_start_graph(&self, took: Duration) {
        self.phase("graph", took);
    }

    fn phase(&self, phase: &'static str, took: Duration) {
        self.cold_start_seconds.get_or_create(&PhaseLabels { phase }).observe(took.as_secs_f64());
    }

    pub fn inference(&self, cost: &Cost) {
        self.queue_seconds.observe(cost.queued.as_secs_f64());
        self.device_seconds.observe(cost.device().as_secs_f64());
    }

    /// Counts a new sandbox while the answer lives.
    pub fn sandbox(&self) -> Gauge {
        self.sandboxes_started.inc();
        Gauge::new(&self.sandboxes)
    }

    /// Counts a revision as awake while the answer lives.
    pub fn awake(&self) -> Gauge {
        Gauge::new(&self.awake)
    }

    /// What tenants have of the devices now, and have had.
    fn tenants(&self, stats: &Stats) {
        // Whoever has nothing any more is not in the accounts.
        self.tenant_device_memory.clear();
        let accounts = stats
            .devices
            .iter()
            .flat_map(|device| device.memory.accounts.iter().map(|account| (device.name.clone(), account)));
        for (device, account) in accounts {
            let kinds = [
                ("weights", account.weights),
                ("activations", account.activations),
                ("reserve", account.reserve),
            ];
            for (kind, bytes) in kinds {
                let (device, tenant) = (device.clone(), account.tenant.to_string());
                let labels = MemoryLabels { device, tenant, kind };
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                self.tenant_device_memory.get_or_create(&labels).inc_by(bytes);
            }
        }
        for device in &stats.devices {
            for (tenant, nanos) in &device.device_time {
                let labels = TenantLabels { device: device.name.clone(), tenant: tenant.to_string() };
                let time = Duration::from_nanos(*nanos);
                let counter = self.tenant_device_seconds.get_or_create(&labels);
                counter.inner().store(time.as_secs_f64().to_bits(), Ordering::Relaxed);
            }
        }
    }

    /// Takes over what the usage log and the exporter count themselves.
    pub fn health(&self, meter: &crate::meter::Stats, exporter: &crate::otlp::Counts) {
        self.health.set(meter, exporter);
    }

    /// All metrics as Prometheus text. The devices' own counts are taken from `stats`, the sandboxes' from `memory`.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn text(&self, stats: &Stats, memory: &NodeMemory) -> Result<String, fmt::Error> {
        let _one = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.memory.set(count(memory.used()));
        self.host_bytes.set(count(memory.host_used()));
        self.resident_graphs.set(count(stats.resident.iter().filter(|graph| !graph.waits).count()));
        self.device_memory.set(i64::try_from(stats.memory).unwrap_or(i64::MAX));
        self.busy_lanes.set(count(stats.devices.iter().map(|device| device.busy).sum()));
        self.queued_jobs.set(count(stats.devices.iter().map(|device| device.queued).sum()));
        self.suspended_jobs.set(count(stats.devices.iter().map(|device| device.suspended).sum()));
        let suspensions = stats.devices.iter().map(|device| device.suspensions).sum();
        for (counter, value) in [
            (&self.graph_loads, stats.loads),
            (&self.graph_hits, stats.hits),
            (&self.graph_evictions, stats.evictions),
            (&self.suspensions, suspensions),
            (&self.batches, stats.batches),
            (&self.batched_requests, stats.batched),
            (&self.operators, stats.operators),
        ] {
            counter.inner().store(value, Ordering::Relaxed);
        }
        self.tenants(stats);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
