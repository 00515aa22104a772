//! What has become of what was to be sent: spans, log records and points of metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the three signals.
#[derive(Debug, Default)]
pub struct Counts {
    pub traces: Count,
    pub metrics: Count,
    pub logs: Count,
}

/// Counts of one signal, of its spans, points or log records.
#[derive(Debug, Default)]
pub struct Count {
    pub(super) queued: AtomicU64,
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) retries: AtomicU64,
}

impl Counts {
    /// The signals by their names.
    pub fn signals(&self) -> [(&'static str, &Count); 3] {
        [("traces", &self.traces), ("metrics", &self.metrics), ("logs", &self.logs)]
    }
}

impl Count {
    /// What waits now.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// What a receiver has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// What found the queue full, or was in it when the server ended.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// What was sent and refused, or could not be sent for as long as it was tried.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// What a receiver did not take of a batch that it took.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Requests that were sent again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

pub(super) fn add(to: &AtomicU64, number: u64) {
    to.fetch_add(number, Ordering::Relaxed);
}
