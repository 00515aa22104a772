//! What the machine has to run graphs on. That is its CPU: there is no GPU device yet.

mod cpu;

use crate::sched::lane::Lanes;

pub(crate) use cpu::cpu;

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

/// A CPU or a GPU that runs graphs, with its lanes.
#[derive(Debug)]
pub(crate) struct Device {
    pub name: String,
    pub kind: DeviceKind,
    pub lanes: Lanes,
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
    /// Jobs waiting for a lane.
    pub queued: usize,
}

impl Device {
    pub fn stats(&self) -> DeviceStats {
        let lanes = self.lanes.stats();
        DeviceStats {
            name: self.name.clone(),
            kind: self.kind,
            lanes: lanes.total,
            busy: lanes.busy,
            queued: lanes.queued,
        }
    }
}
