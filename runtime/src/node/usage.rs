//! What goes into usage records beside the calls' own: what calls use after theirs, and what stays in devices' memory. And
//! metrics on their way out.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Node;
use crate::telemetry::otlp;

/// How long the last calls' sandboxes have to end when the server has stopped.
const LAST: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

impl Node {
    /// Writes records of what calls have used after theirs and of what was held of devices' memory, up to now.
    pub fn record_rest(&self) {
        if !self.meter.is_on() {
            return;
        }
        let mut records = self.meter.rests.take();
        let held = self.service.take_held();
        let devices = self.service.stats().devices;
        let mut residency = self.residency.lock().unwrap_or_else(PoisonError::into_inner);
        records.extend(residency.take(held, &devices, |tenant, digest| self.model_name(tenant, digest)));
        for mut record in records {
            // What the disk does not take now is held, and written when it does.
            let _ = self.meter.record(&mut record);
        }
    }

    /// Has all metrics sent, for as long as it is polled.
    pub async fn send_metrics(&self) {
        let Some(exporter) = self.exporter.as_ref().filter(|exporter| exporter.has_metrics()) else { return };
        loop {
            tokio::time::sleep(self.settings().otlp.metrics_interval).await;
            exporter.metrics(otlp::metrics(&self.metrics().await));
        }
    }

    /// What a tenant calls a model of this digest: the first name, if there are several; nothing if there is none any more.
    fn model_name(&self, tenant: &str, digest: &str) -> Arc<str> {
        let models = self.models.of(tenant);
        let found = models.iter().find(|model| model.record.digest == digest);
        found.map(|model| model.record.name.as_str().into()).unwrap_or_default()
    }

    /// The server has stopped: the last records are written when the last sandboxes have ended, or their time is over.
    pub(super) async fn record_last(&self) {
        let end = tokio::time::Instant::now() + LAST;
        while !self.meter.rests.is_idle() && tokio::time::Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        self.record_rest();
    }
}
