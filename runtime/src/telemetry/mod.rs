//! Metrics: what is counted, and how it is shown.
//!
//! ```text
//! names.rs        every metric's name, labels and help
//! count.rs        what counts are kept in
//! series.rs       what calls of a function are counted in
//! cardinality.rs  who has labels of its own
//! devices.rs      what the devices count
//! health.rs       what the usage log, the exporter and the webhook count
//! process.rs      what the system counts
//! scrape.rs       all of it at one time
//! snapshot.rs     that, as text
//! otlp.rs         that, as OTLP carries it
//! ```
//!
//! A count is an atomic that whoever counts holds or finds by a number; names and labels are put to it when somebody asks.

mod cardinality;
mod count;
mod devices;
mod health;
pub mod names;
pub mod otlp;
mod process;
mod scrape;
mod series;
mod snapshot;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_gpu::Cost;

pub use cardinality::OTHER;
pub use count::Gauge;
pub use series::Tally;
pub use snapshot::Form;

use crate::config::MetricsConfig;
use crate::http::problem::Code;
use crate::limits::Limit;
use cardinality::Cardinality;
use count::{Count, Counts, Histogram, INNER_BOUNDS, Live};
use devices::Devices;

/// What the server counts.
pub struct Telemetry {
    since: SystemTime,
    functions: Cardinality,
    devices: Devices,
    limits: Counts,
    problems: Counts,
    egress_refused: Count,
    connections: Live,
    /// Phases of cold starts: code, sandbox, graph.
    cold_starts: [Histogram; 3],
    sandboxes: Live,
    sandboxes_started: Count,
    awake: Live,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            since: SystemTime::now(),
            functions: Cardinality::default(),
            devices: Devices::default(),
            limits: Counts::new(Limit::ALL.len()),
            problems: Counts::new(Code::ALL.len()),
            egress_refused: Count::default(),
            connections: Live::default(),
            cold_starts: [(); 3].map(|()| Histogram::new(INNER_BOUNDS)),
            sandboxes: Live::default(),
            sandboxes_started: Count::default(),
            awake: Live::default(),
        }
    }
}

impl Telemetry {
    /// What a function that is deployed counts its calls with, for as long as it holds it.
    pub fn function(&self, tenant: &Arc<str>, function: &Arc<str>, most: MetricsConfig) -> Arc<Tally> {
        self.functions.enter(tenant, function, most)
    }

    /// A limit was met.
    pub fn limit(&self, limit: Limit) {
        self.limits.add(limit as usize);
    }

    /// An answer is a problem.
    pub fn problem(&self, code: Code) {
        self.problems.add(code as usize);
    }

    /// An outgoing request was refused.
    pub fn egress_refused(&self) {
        self.egress_refused.add(1);
    }

    /// Counts a connection while the answer lives.
    pub fn connection(&self) -> Gauge {
        self.connections.one()
    }

    /// A revision woke: its code was mapped and linked.
    pub fn cold_start_code(&self, took: Duration) {
        let [code, _, _] = &self.cold_starts;
        code.observe(took);
    }

    /// The first sandbox of a revision that woke.
    pub fn cold_start_sandbox(&self, took: Duration) {
        let [_, sandbox, _] = &self.cold_starts;
        sandbox.observe(took);
    }

    /// A graph was loaded because a guest asked for it.
    pub fn cold_start_graph(&self, took: Duration) {
        let [_, _, graph] = &self.cold_starts;
        graph.observe(took);
    }

    /// An inference was answered by a device.
    pub fn inference(&self, device: &str, cost: &Cost) {
        self.devices.inference(device, cost);
    }

    /// Counts a new sandbox while the answer lives.
    pub fn sandbox(&self) -> Gauge {
        self.sandboxes_started.add(1);
        self.sandboxes.one()
    }

    /// Counts a revision as awake while the answer lives.
    pub fn awake(&self) -> Gauge {
        self.awake.one()
    }
}

#[cfg(test)]
mod tests;
