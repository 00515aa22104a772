//! What has a price, and how much of it sums of usage have.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Amount;
use crate::meter::totals::Sums;

/// What is priced, named by what one of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A second of one of a device's lanes.
    DeviceSecond,
    /// A GiB of a device's memory, used for a second.
    MemoryGibSecond,
    /// A GiB of a device's memory, kept free for the tenant for a second.
    ReservedGibSecond,
    /// A graph that was loaded because a call asked for it.
    Load,
    /// A second of such loads.
    LoadSecond,
    /// A million calls.
    MillionCalls,
    /// A second of CPU time of guests.
    GuestCpuSecond,
    /// A GiB of the host's memory for a second.
    HostMemoryGibSecond,
    /// A GiB that guests sent to other hosts.
    EgressGib,
}

/// 2^-30 is this × 10^-30.
const PER_GIB: u128 = 5_u128.pow(30);

impl Unit {
    /// As the records and prices have them: those of devices, then those of calls.
    pub const ALL: [Self; 9] = [
        Self::DeviceSecond,
        Self::MemoryGibSecond,
        Self::ReservedGibSecond,
        Self::Load,
        Self::LoadSecond,
        Self::MillionCalls,
        Self::GuestCpuSecond,
        Self::HostMemoryGibSecond,
        Self::EgressGib,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::DeviceSecond => "device_second",
            Self::MemoryGibSecond => "memory_gib_second",
            Self::ReservedGibSecond => "reserved_gib_second",
            Self::Load => "load",
            Self::LoadSecond => "load_second",
            Self::MillionCalls => "million_calls",
            Self::GuestCpuSecond => "guest_cpu_second",
            Self::HostMemoryGibSecond => "host_memory_gib_second",
            Self::EgressGib => "egress_gib",
        }
    }

    /// Whether it is of devices, and not of calls as a whole.
    pub fn is_of_devices(self) -> bool {
        match self {
            Self::DeviceSecond
            | Self::MemoryGibSecond
            | Self::ReservedGibSecond
            | Self::Load
            | Self::LoadSecond => true,
            Self::MillionCalls | Self::GuestCpuSecond | Self::HostMemoryGibSecond | Self::EgressGib => false,
        }
    }

    /// The field of records and sums that counts it: nanoseconds, bytes × milliseconds, bytes, or one by one.
    pub fn field(self) -> &'static str {
        match self {
            Self::DeviceSecond => "device_ns",
            Self::MemoryGibSecond => "memory_byte_ms",
            Self::ReservedGibSecond => "reserved_byte_ms",
            Self::Load => "loads",
            Self::LoadSecond => "load_ns",
            Self::MillionCalls => "calls",
            Self::GuestCpuSecond => "guest_cpu_ns",
            Self::HostMemoryGibSecond => "host_memory_byte_ms",
            Self::EgressGib => "egress_bytes",
        }
    }

    /// How much of it there is, as that field has it.
    pub fn counted(self, sums: &Sums) -> u64 {
        *self.counted_in(&mut { *sums })
    }

    /// The field itself.
    pub fn counted_in(self, sums: &mut Sums) -> &mut u64 {
        match self {
            Self::DeviceSecond => &mut sums.device_ns,
            Self::MemoryGibSecond => &mut sums.memory_byte_ms,
            Self::ReservedGibSecond => &mut sums.reserved_byte_ms,
            Self::Load => &mut sums.loads,
            Self::LoadSecond => &mut sums.load_ns,
            Self::MillionCalls => &mut sums.calls,
            Self::GuestCpuSecond => &mut sums.guest_cpu_ns,
            Self::HostMemoryGibSecond => &mut sums.host_memory_byte_ms,
            Self::EgressGib => &mut sums.egress_bytes,
        }
    }

    /// So much as records count it, in this unit. Exact: all that is divided by is made of twos and fives.
    pub fn quantity(self, counted: u128) -> Amount {
        let gib = |scale| &Amount::new(PER_GIB, scale) * &Amount::new(counted, 0);
        match self {
            Self::DeviceSecond | Self::LoadSecond | Self::GuestCpuSecond => Amount::new(counted, 9),
            Self::MemoryGibSecond | Self::ReservedGibSecond | Self::HostMemoryGibSecond => gib(33),
            Self::EgressGib => gib(30),
            Self::MillionCalls => Amount::new(counted, 6),
            Self::Load => Amount::new(counted, 0),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact() {
        for (unit, counted, quantity) in [
            (Unit::DeviceSecond, 1, "0.000000001"),
            (Unit::LoadSecond, 2_500_000_000, "2.5"),
            (Unit::MillionCalls, 1, "0.000001"),
            (Unit::Load, 7, "7"),
            (Unit::EgressGib, 1 << 30, "1"),
            (Unit::EgressGib, 1, "0.000000000931322574615478515625"),
            (Unit::MemoryGibSecond, (1 << 30) * 1000, "1"),
            (Unit::ReservedGibSecond, 1, "0.000000000000931322574615478515625"),
            // More than 64 bits: 139 GiB for a month.
            (Unit::ReservedGibSecond, 139 * (1 << 30) * 2_592_000_000, "360288000"),
        ] {
            assert_eq!(unit.quantity(counted).to_string(), quantity, "{unit} {counted}");
        }
    }

    #[test]
    fn a_unit_is_written_as_its_name() {
        for unit in Unit::ALL {
            assert_eq!(serde_json::to_value(unit).unwrap(), unit.name());
        }
    }
}
