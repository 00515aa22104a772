//! What is kept of what calls use, and for how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Size, span};

/// Usage records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeteringConfig {
    /// Whether calls leave usage records. Without them there is no bill.
    pub enabled: bool,
    /// The size of a file of the usage log.
    pub segment_bytes: Size,
    /// How often what was written is synced: what a power cut may lose. A killed server loses nothing.
    #[serde(with = "span")]
    pub sync_interval: Duration,
    /// How often records are added to the sums in the database.
    #[serde(with = "span")]
    pub flush_interval: Duration,
    /// How long records are kept. Sums stay.
    #[serde(with = "span")]
    pub keep: Duration,
    /// The most bytes of the usage log.
    pub disk_bytes: Size,
    /// What is done when there are as many, or when the disk takes no more.
    pub when_full: WhenFull,
    /// The most records that are held in memory while the disk takes none. With half as many, or with `when_full` at once, calls
    /// are refused.
    pub held_records: usize,
}

/// What is done when the usage log has all the bytes that it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The oldest records go, once they are in the sums.
    #[default]
    DropOldest,
    /// Calls are refused.
    Refuse,
}

impl Default for MeteringConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            segment_bytes: Size::mib(64),
            sync_interval: Duration::from_secs(1),
            flush_interval: Duration::from_secs(10),
            // A year and a month, as humantime has them.
            keep: Duration::from_secs(31_557_600 + 2_630_016),
            disk_bytes: Size::mib(16 << 10),
            when_full: WhenFull::default(),
            held_records: 100_000,
        }
    }
}

impl MeteringConfig {
    /// The smallest segment: a few records.
    const SEGMENT: Size = Size::bytes(4 << 10);

    pub(super) fn check(&self) -> Result<(), String> {
        let (segment, disk) = (self.segment_bytes, self.disk_bytes);
        if !(Self::SEGMENT..=Size::mib(1 << 10)).contains(&segment) {
            return Err(format!("metering.segment_bytes is {segment}; it must be 4 KiB to 1 GiB"));
        }
        // One is written, and one may wait to be summed up.
        if disk.as_u64() / 4 < segment.as_u64() {
            return Err(format!(
                "metering.disk_bytes is {disk}; it must be at least four times metering.segment_bytes, {segment}"
            ));
        }
        for (field, span) in [("sync_interval", self.sync_interval), ("flush_interval", self.flush_interval)]
        {
            if span.is_zero() || span > Duration::from_secs(3600) {
                let span = humantime::format_duration(span);
                return Err(format!("metering.{field} is {span}; it must be more than 0s and at most 1h"));
            }
        }
        Ok(())
    }
}
