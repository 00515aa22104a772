//! What the operator may set about devices.

use std::num::NonZeroUsize;

use super::GpuFolders;

/// What the operator may set about the GPU.
#[derive(Debug, Clone)]
pub struct GpuConfig {
    /// Jobs that may run at one time, each on a stream of its own.
    pub lanes: NonZeroUsize,
    /// Requests that may wait for it, as [`DeviceConfig::queue`].
    pub queue: usize,
    /// The most bytes of its memory; all that is free at the start but a twentieth when absent.
    pub memory: Option<u64>,
    /// The most jobs that may have begun and wait to go on. Each holds a thread, a stream and its memory.
    pub suspended: usize,
    /// The most operators of a job that the host may be ahead of the device.
    pub outstanding: NonZeroUsize,
    /// Only if all parts are in these folders: the driver is not opened otherwise.
    pub only_with: Option<GpuFolders>,
}

impl Default for GpuConfig {
    fn default() -> Self {
        let number = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
        Self {
            lanes: number(2),
            queue: 1024,
            memory: None,
            suspended: 2,
            outstanding: number(8),
            only_with: None,
        }
    }
}
