//! How the usage log and the exporter do: counts that they keep themselves, as metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Kept;
use crate::meter::Stats;
use crate::otlp::Counts;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignalLabels {
    signal: &'static str,
}

type OfSignals<M> = Family<SignalLabels, M>;

/// Metrics of the usage log and of the exporter.
#[derive(Default)]
pub struct Health {
    records: Kept,
    lost: Kept,
    expired: Kept,
    dropped: Kept,
    clock_steps: Kept,
    held: Gauge,
    segments: Gauge,
    bytes: Gauge,
    most_bytes: Gauge,
    refuses: Gauge,
    queued: OfSignals<Gauge>,
    exported: OfSignals<Counter<u64, AtomicU64>>,
    unexported: OfSignals<Counter<u64, AtomicU64>>,
    failed: OfSignals<Counter<u64, AtomicU64>>,
    rejected: OfSignals<Counter<u64, AtomicU64>>,
    retries: OfSignals<Counter<u64, AtomicU64>>,
}

impl Health {
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("usage_records", "Usage records written", &self.records),
            (
                "usage_records_lost",
                "Usage records that are nowhere, as the disk took none and no more could be held",
                &self.lost,
            ),
            ("usage_segments_expired", "Files of the usage log removed for their age", &self.expired),
            ("usage_segments_dropped", "Files of the usage log removed for want of room", &self.dropped),
            (
                "usage_clock_steps",
                "Times that the machine's clock was found to have been set back",
                &self.clock_steps,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, gauge) in [
            (
                "usage_records_held",
                "Usage records that are held in memory because the disk takes none",
                &self.held,
            ),
            ("usage_log_segments", "Files of the usage log", &self.segments),
            ("usage_log_bytes", "Bytes of the usage log", &self.bytes),
            ("usage_log_most_bytes", "Bytes that the usage log may have", &self.most_bytes),
            (
                "usage_refuses",
                "Whether calls are refused because their records could not be taken",
                &self.refuses,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        registry.register(
            "otlp_queued",
            "Spans, points and log records that wait to be sent",
            self.queued.clone(),
        );
        for (name, help, family) in [
            ("otlp_exported", "Spans, points and log records that a receiver has taken", &self.exported),
            ("otlp_dropped", "Those that found the queue full, or were in it at the end", &self.unexported),
            ("otlp_failed", "Those that a receiver refused, or could not be reached for", &self.failed),
            ("otlp_rejected", "Those that a receiver did not take of a batch that it took", &self.rejected),
            ("otlp_retries", "Requests that were sent again", &self.retries),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    pub fn set(&self, stats: &Stats, counts: &Counts) {
        for (counter, value) in [
            (&self.records, stats.records),
            (&self.lost, stats.lost),
            (&self.expired, stats.expired),
            (&self.dropped, stats.dropped),
            (&self.clock_steps, stats.clock_steps),
        ] {
            counter.inner().store(value, Ordering::Relaxed);
        }
        for (gauge, value) in [
            (&self.held, stats.held),
            (&self.segments, stats.segments),
            (&self.bytes, stats.bytes),
            (&self.most_bytes, stats.most_bytes),
            (&self.refuses, stats.refuses.into()),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for (signal, count) in counts.signals() {
            let labels = SignalLabels { signal };
            self.queued.get_or_create(&labels).set(i64::try_from(count.queued()).unwrap_or(i64::MAX));
            for (family, value) in [
                (&self.exported, count.exported()),
                (&self.unexported, count.dropped()),
                (&self.failed, count.failed()),
                (&self.rejected, count.rejected()),
                (&self.retries, count.retries()),
            ] {
                family.get_or_create(&labels).inner().store(value, Ordering::Relaxed);
            }
        }
    }
}
