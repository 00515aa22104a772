//! What a device would do with a load: who would wait, be refused, or be evicted. Pure: a trace goes in, a report comes
//! out, and the same trace and policy always give the same report.
//!
//! Nothing here decides anything. Whose turn it is, who rides along, how long a run will take and which idle graph makes
//! room is asked of the same code that the real device asks ([`Fair`], [`Trains`], [`Times`], and the choice in
//! `residency/`); here are only the moments at which it is asked, in the order of the real device: `device.rs` for its
//! lanes, `memory.rs` for its graphs. `report.rs` counts, and `trace.rs` makes up loads.
//!
//! A model is a number of operators of equal length, and what a run of it takes is a fixed part and a part for each row.
//! So it is left out what is not in such a description: that times vary, what the tensors of a run need of the memory, and
//! that two lanes, or a load and a run, may slow each other down. Loads take no lane, and any number of them is under way
//! at one time.
//!
//! Costs a few events for each operator, and 16 bytes for each answer, since percentiles are exact.

mod device;
mod memory;
mod report;
pub mod trace;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use crate::{Class, Eviction, ModelPolicy, Sharing, TenantShare};

pub use report::{ModelReport, Quantiles, Refusal, Report, TenantReport, Totals};

/// Everything that decides what a load comes to. The default is a device with one lane that is shared as Weir's
/// defaults have it, and small models that are loaded in no time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub device: Device,
    /// What a tenant may have, unless it is named.
    pub tenant: TenantShare,
    pub tenants: BTreeMap<String, TenantShare>,
    /// What a model is like, unless it is named.
    pub model: Model,
    pub models: BTreeMap<String, Model>,
    /// The longest that a request waits for a lane, once its graph is in memory.
    pub queue_timeout: Option<Duration>,
    /// How long after its arrival nobody wants a request's answer any more.
    pub deadline: Option<Duration>,
}

/// A device and how it is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Operators that may run at one time.
    pub lanes: NonZeroUsize,
    /// Bytes for the graphs of models.
    pub memory: u64,
    /// The most requests that may wait for a lane. Where it is full, a tenant may still have its even part of it waiting, or
    /// one: at most twice as many wait, and one for each tenant.
    pub queue: usize,
    pub sharing: Sharing,
    pub eviction: Eviction,
    /// Whether requests go first come, first served, without classes and without making way. To compare with.
    pub fifo: bool,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            lanes: NonZeroUsize::MIN,
            memory: 4 << 30,
            queue: 1024,
            sharing: Sharing::default(),
            eviction: Eviction::default(),
            fifo: false,
        }
    }
}

/// What a model needs, and how it is held and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Operators that a run is made of; it can make way between any two.
    pub operators: NonZeroU32,
    /// What any run takes of a lane.
    pub run_time: Duration,
    /// What each row takes beyond that.
    pub row_time: Duration,
    /// Bytes of the device's memory that its graph takes.
    pub bytes: u64,
    /// How long the graph takes to load.
    pub load_time: Duration,
    pub policy: ModelPolicy,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            operators: NonZeroU32::MIN.saturating_add(9),
            run_time: Duration::from_millis(1),
            row_time: Duration::from_millis(1),
            bytes: 0,
            load_time: Duration::ZERO,
            policy: ModelPolicy::default(),
        }
    }
}

/// A request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds since any moment.
    pub at: u64,
    pub tenant: Arc<str>,
    pub model: Arc<str>,
    pub rows: u64,
    pub class: Class,
}

impl Policy {
    fn share(&self, tenant: &str) -> &TenantShare {
        self.tenants.get(tenant).unwrap_or(&self.tenant)
    }

    fn model(&self, model: &str) -> &Model {
        self.models.get(model).unwrap_or(&self.model)
    }
}

/// Runs a device over arrivals until all are answered or refused. They are to be in the order of their times; one that is
/// earlier than the one before it is taken to come with it.
pub fn simulate(policy: &Policy, arrivals: impl Iterator<Item = Arrival>) -> Report {
    let mut simulation = device::Simulation::new(policy);
    for arrival in arrivals {
        simulation.arrive(arrival);
    }
    simulation.finish()
}
