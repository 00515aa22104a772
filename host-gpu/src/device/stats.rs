//! What a device tells of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::DeviceKind;
use crate::quota::LedgerStats;

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
    /// Nanoseconds of device time since the start, by tenant. Of the tenants that have not used it for longest, beyond some
    /// thousands, nothing is remembered.
    pub device_time: BTreeMap<Arc<str>, u64>,
    /// Nanoseconds that its lanes were used since the start, and those of them that are on nobody's [`Tab`].
    pub used: u64,
    pub unbilled: u64,
    /// Nanoseconds of loading graphs and of making them ready for shapes, since the start.
    pub load_time: u64,
    /// Its memory, as it is planned.
    pub memory: LedgerStats,
    /// The same as its driver counts it, where it has one.
    pub driver: Option<DriverMemory>,
    /// Whether it has stopped working.
    pub failed: bool,
}

/// A device's memory as its driver counts it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverMemory {
    pub total: u64,
    /// In nobody's use.
    pub free: u64,
    /// In tensors and constants.
    pub pool_used: u64,
    /// In tensors and constants, and kept for such.
    pub pool_reserved: u64,
    /// In use when the server had started the device: by the context, streams and libraries, and other processes.
    pub context: u64,
}

/// What is counted of a device.
pub(crate) struct Counts {
    pub loads: u64,
    pub unloads: u64,
    pub evictions: u64,
    pub hits: u64,
    pub failed_loads: u64,
    pub batches: u64,
    pub batched: u64,
    pub operators: u64,
}
