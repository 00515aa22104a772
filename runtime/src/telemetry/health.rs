//! How the usage log, the exporter and the webhook do: what they count themselves.

use super::names;
use super::snapshot::{Sample, Snapshot};
use crate::meter::Stats;
use crate::otlp::{Count, Counts};
use crate::webhook;

/// Adds what the usage log counts.
pub fn usage(snapshot: &mut Snapshot, stats: &Stats) {
    snapshot.one(&names::USAGE_RECORDS, stats.records);
    snapshot.one(&names::USAGE_RECORDS_LOST, stats.lost);
    snapshot.one(&names::USAGE_RECORDS_HELD, stats.held);
    snapshot.one(&names::USAGE_LOG_SEGMENTS, stats.segments);
    snapshot.one(&names::USAGE_LOG_BYTES, stats.bytes);
    snapshot.one(&names::USAGE_LOG_MOST_BYTES, stats.most_bytes);
    snapshot.one(&names::USAGE_SEGMENTS_EXPIRED, stats.expired);
    snapshot.one(&names::USAGE_SEGMENTS_DROPPED, stats.dropped);
    snapshot.one(&names::USAGE_CLOCK_STEPS, stats.clock_steps);
    snapshot.one(&names::USAGE_REFUSES, u64::from(stats.refuses));
}

/// Adds what has become of events.
pub fn webhook(snapshot: &mut Snapshot, counts: &webhook::Counts) {
    snapshot.one(&names::WEBHOOK_TAKEN, counts.taken());
    snapshot.one(&names::WEBHOOK_FAILED, counts.failed());
    snapshot.one(&names::WEBHOOK_BEHIND, counts.behind().saturating_mul(3600));
}

/// Adds what has become of what was to be sent.
pub fn exporter(snapshot: &mut Snapshot, counts: &Counts) {
    let of = |count: fn(&Count) -> u64| {
        counts.signals().map(|(signal, counted)| Sample::new([signal], count(counted)))
    };
    snapshot.add(&names::OTLP_QUEUED, of(Count::queued));
    snapshot.add(&names::OTLP_EXPORTED, of(Count::exported));
    snapshot.add(&names::OTLP_DROPPED, of(Count::dropped));
    snapshot.add(&names::OTLP_FAILED, of(Count::failed));
    snapshot.add(&names::OTLP_REJECTED, of(Count::rejected));
    snapshot.add(&names::OTLP_RETRIES, of(Count::retries));
}
