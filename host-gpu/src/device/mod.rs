//! What the machine has to run graphs on. That is its CPU: there is no GPU device yet.

mod probe;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quota::LedgerStats;

pub use probe::{GpuFolders, GpuPart, gpu_parts};

/// The kind of device that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceKind {
    #[default]
    Cpu,
    Gpu,
}

impl DeviceKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// A device's load at one moment.
#[derive(Debug, Clone)]
pub struct DeviceStats {
    pub name: String,
    pub kind: DeviceKind,
    /// Operators that may run at one time.
    pub lanes: usize,
    /// Lanes in use.
    pub busy: usize,
    /// Requests waiting for a lane.
    pub queued: usize,
    /// The same, by tenant.
    pub queued_by: Vec<(Arc<str>, usize)>,
    /// Jobs that have begun and made way for others.
    pub suspended: usize,
    /// How often a job has made way.
    pub suspensions: u64,
    /// Nanoseconds of device time since the start, by tenant.
    pub device_time: BTreeMap<Arc<str>, u64>,
    /// Its memory, as it is planned.
    pub memory: LedgerStats,
}
