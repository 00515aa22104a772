//! Metrics: every name in one file. Prometheus text at `/metrics`.

use std::fmt;
use std::sync::atomic::AtomicU64;
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
use crate::sandbox::memory::NodeMemory;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The function answered whole, whatever its status.
    Answered,
    /// The function trapped, or ended without an answer or in the middle of one.
    Failed,
    /// The deadline passed.
    TimedOut,
    /// Refused before it ran.
    Refused,
    /// The client went away.
    Cancelled,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

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

/// The server's metrics.
pub struct Telemetry {
    registry: Registry,
    limits: Family<LimitLabels, Counter>,
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
    graph_loads: Counter<u64, AtomicU64>,
    busy_lanes: gauge::Gauge,
    queued_jobs: gauge::Gauge,
    operators: Counter<u64, AtomicU64>,
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
        let graph_loads = Counter::default();
        registry.register("graph_loads", "Graphs loaded", graph_loads.clone());
        let busy_lanes = gauge::Gauge::default();
        registry.register("busy_lanes", "Lanes in use, over all devices", busy_lanes.clone());
        let queued_jobs = gauge::Gauge::default();
        registry.register("queued_jobs", "Jobs waiting for a lane, over all devices", queued_jobs.clone());
        let operators = Counter::default();
        registry.register("operators", "Operators run", operators.clone());
        Self {
            registry,
            limits,
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
            graph_loads,
            busy_lanes,
            queued_jobs,
            operators,
        }
    }
}

impl Telemetry {
    /// A call ended, its answer's body included.
    pub fn call(&self, outcome: Outcome) {
        self.calls.get_or_create(&CallLabels { outcome }).inc();
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
        self.device_seconds.observe(cost.device.as_secs_f64());
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

    /// All metrics as Prometheus text. The devices' own counts are taken from `stats`, the sandboxes' from `memory`.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn text(&self, stats: &Stats, memory: &NodeMemory) -> Result<String, fmt::Error> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.memory.set(count(memory.used()));
        self.host_bytes.set(count(memory.host_used()));
        self.resident_graphs.set(count(stats.resident.len()));
        self.device_memory.set(i64::try_from(stats.memory).unwrap_or(i64::MAX));
        self.busy_lanes.set(count(stats.devices.iter().map(|device| device.busy).sum()));
        self.queued_jobs.set(count(stats.devices.iter().map(|device| device.queued).sum()));
        self.graph_loads.inner().store(stats.loads, std::sync::atomic::Ordering::Relaxed);
        self.operators.inner().store(stats.operators, std::sync::atomic::Ordering::Relaxed);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
