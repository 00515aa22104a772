//! All metrics at one time: what is counted here, and what the server's parts count themselves.

use std::time::{Duration, Instant, SystemTime};

use super::snapshot::{Sample, Snapshot};
use super::{health, names, process};
use crate::http::problem::Code;
use crate::limits::Limit;
use crate::meter::record::Outcome;
use crate::node::Node;

/// How long a scrape waits for the disk. One that takes longer cannot be written, as far as the scrape knows.
const PATIENCE: Duration = Duration::from_secs(1);

impl Node {
    /// All metrics.
    pub async fn metrics(&self) -> Snapshot {
        let (since, at) = (self.telemetry.since, SystemTime::now());
        let mut snapshot = Snapshot { since, at, families: vec![] };
        let labels = [env!("CARGO_PKG_VERSION"), if cfg!(feature = "cuda") { "true" } else { "false" }];
        snapshot.add(&names::BUILD_INFO, [Sample::new(labels, 1_u64)]);
        self.add_calls(&mut snapshot);
        self.add_server(&mut snapshot);
        self.add_sandboxes(&mut snapshot);
        let (telemetry, most) = (&self.telemetry, self.settings().metrics);
        telemetry.devices.add(&mut snapshot, &self.service.stats(), &telemetry.functions, most);
        self.add_store(&mut snapshot).await;
        self.add_usage(&mut snapshot);
        process::add(&mut snapshot);
        snapshot
    }

    fn add_calls(&self, snapshot: &mut Snapshot) {
        let shown = self.telemetry.functions.show(self.settings().metrics, Instant::now());
        let (mut calls, mut seconds, mut problems) = (vec![], vec![], vec![]);
        let (mut in_flight, mut cold_starts) = (vec![], vec![]);
        for row in shown.rows {
            let (tenant, function, since) = (&row.tenant, &row.function, Some(row.series.since));
            for (outcome, count) in Outcome::ALL.iter().zip(row.series.calls.get()) {
                let labels = [&**tenant, function, outcome.name()];
                calls.push(Sample { since, ..Sample::new(labels, count) });
            }
            for (code, count) in
                Code::ALL.iter().zip(row.series.problems.get()).filter(|(_, count)| *count > 0)
            {
                problems.push(Sample { since, ..Sample::new([&**tenant, function, code.name()], count) });
            }
            let labels = || [tenant, function].map(std::sync::Arc::clone);
            seconds.push(Sample { since, ..Sample::new(labels(), row.series.seconds.get()) });
            cold_starts.push(Sample { since, ..Sample::new(labels(), row.series.cold_starts.get()) });
            in_flight.push(Sample::new(labels(), row.in_flight));
        }
        snapshot.add(&names::CALLS, calls);
        snapshot.add(&names::CALL_SECONDS, seconds);
        snapshot.add(&names::CALL_PROBLEMS, problems);
        snapshot.add(&names::CALLS_IN_FLIGHT, in_flight);
        snapshot.add(&names::COLD_STARTS, cold_starts);
        snapshot.one(&names::FOLDED_FUNCTIONS, shown.folded_functions);
        snapshot.one(&names::FOLDED_TENANTS, shown.folded_tenants);
    }

    fn add_server(&self, snapshot: &mut Snapshot) {
        let telemetry = &self.telemetry;
        // From zero on, so that the first is seen to be one more.
        let problems = Code::ALL.iter().zip(telemetry.problems.get());
        snapshot.add(&names::PROBLEMS, problems.map(|(code, count)| Sample::new([code.name()], count)));
        let limits = Limit::ALL.iter().zip(telemetry.limits.get());
        snapshot.add(&names::LIMITS, limits.map(|(limit, count)| Sample::new([limit.field()], count)));
        snapshot.one(&names::EGRESS_REFUSED, telemetry.egress_refused.get());
        snapshot.one(&names::CONNECTIONS, telemetry.connections.get());
        snapshot.one(&names::FUNCTIONS, self.functions.count());
        snapshot.one(&names::MODELS, self.models.count());
    }

    fn add_sandboxes(&self, snapshot: &mut Snapshot) {
        let (telemetry, memory) = (&self.telemetry, &self.memory);
        let phases = ["code", "sandbox", "graph"].into_iter().zip(&telemetry.cold_starts);
        let phases = phases.map(|(phase, took)| Sample::new([phase], took.get()));
        snapshot.add(&names::COLD_START_SECONDS, phases);
        snapshot.one(&names::AWAKE_REVISIONS, telemetry.awake.get());
        snapshot.one(&names::SANDBOXES, telemetry.sandboxes.get());
        snapshot.one(&names::IDLE_SANDBOXES, memory.idle());
        snapshot.one(&names::MAX_SANDBOXES, self.sandboxes.most());
        snapshot.one(&names::SANDBOXES_STARTED, telemetry.sandboxes_started.get());
        snapshot.one(&names::MEMORY_BYTES, memory.used());
        snapshot.one(&names::MAX_MEMORY_BYTES, memory.most());
        snapshot.one(&names::HOST_BYTES, memory.host_used());
    }

    fn add_usage(&self, snapshot: &mut Snapshot) {
        health::usage(snapshot, &self.meter.stats());
        let over = ["soft", "hard"].into_iter().zip(self.budgets.over(self.clock()));
        snapshot.add(&names::BUDGETS_OVER, over.map(|(bound, tenants)| Sample::new([bound], tenants)));
        // Nothing has become of anything where nothing is sent.
        let (exported, told) = (Default::default(), Default::default());
        health::exporter(snapshot, self.exporter.as_ref().map_or(&exported, |exporter| exporter.counts()));
        health::webhook(snapshot, self.webhook.as_ref().map_or(&told, |webhook| webhook.counts()));
    }

    async fn add_store(&self, snapshot: &mut Snapshot) {
        let written = tokio::time::timeout(PATIENCE, self.store.can_write()).await;
        let is_up = written.is_ok_and(|written| written.is_ok());
        snapshot.one(&names::STORE_UP, u64::from(is_up));
        // A disk that hangs is not asked again.
        let sizes = if is_up { self.store.sizes().await } else { None };
        snapshot.known(&names::DATABASE_BYTES, sizes.map(|sizes| sizes.database));
        snapshot.known(&names::DISK_FREE_BYTES, sizes.map(|sizes| sizes.free));
        snapshot.known(&names::DISK_BYTES, sizes.map(|sizes| sizes.disk));
    }
}
