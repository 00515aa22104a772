//! The machine's CPU as a device.

use std::num::NonZeroUsize;

use super::{Device, DeviceKind};
use crate::sched::lane::Lanes;

/// The CPU with `lanes` lanes, or one per core that this process may use.
pub(crate) fn cpu(lanes: Option<NonZeroUsize>, queue: usize) -> Device {
    let lanes = lanes.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let name = "cpu0".to_owned();
    Device { lanes: Lanes::new(&name, lanes, queue), name, kind: DeviceKind::Cpu }
}
