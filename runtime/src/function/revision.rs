//! An immutable revision of a function: a component and a configuration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::FunctionConfig;
use super::wake::{ColdStart, State};
use crate::admission::Gate;
use crate::meter::rest::Rest;
use crate::node::Node;
use crate::sandbox::logs::Log;
use crate::sandbox::store::Common;
use crate::sandbox::wasi_nn::ModelAccess;
use crate::telemetry::Tally;

/// A revision as it is kept and shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevisionRecord {
    pub revision: u64,
    /// SHA-256 of the component.
    pub digest: String,
    /// Bytes of the component.
    pub bytes: u64,
    pub config: FunctionConfig,
    /// The interfaces that the component imports.
    pub imports: Vec<String>,
    /// The name of the tenant's key that had signed the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// RFC 3339.
    pub created: String,
    /// The id of the key that deployed it; none on a server that asks for no keys, and of older deploys.
    #[serde(default)]
    pub created_by: Option<String>,
}

/// A revision that can be called.
pub struct Revision {
    pub tenant: Arc<str>,
    pub function: Arc<str>,
    pub number: u64,
    pub digest: Arc<str>,
    /// Bytes of the component.
    pub bytes: u64,
    pub config: FunctionConfig,
    pub gate: Gate,
    /// Its tenant's.
    pub tenant_gate: Arc<Gate>,
    pub log: Arc<Log>,
    /// What its calls use after their records.
    pub rest: Arc<Rest>,
    /// Its function's.
    pub(super) tally: Arc<Tally>,
    pub(super) node: Arc<Node>,
    pub(super) state: Mutex<State>,
    /// Cancelled when the revision is removed.
    pub(super) removed: CancellationToken,
    /// Calls that were sent here and have no sandbox yet.
    pub(super) calls: TaskTracker,
    cold_starts: AtomicU64,
    last: Mutex<Option<Arc<ColdStart>>>,
}

impl Revision {
    pub fn new(
        tenant: Arc<str>,
        function: Arc<str>,
        record: &RevisionRecord,
        log: Arc<Log>,
        tally: Arc<Tally>,
        node: Arc<Node>,
    ) -> Self {
        let name = Arc::clone(&function);
        let class = record.config.class.unwrap_or_default().name().into();
        let rest = node.meter.rests.open(&tenant, &function, record.revision, Some(class));
        Self {
            rest,
            number: record.revision,
            digest: record.digest.as_str().into(),
            bytes: record.bytes,
            gate: Gate::new(name, record.config.max_concurrency.get(), record.config.max_queue),
            tenant_gate: node.gates.of(&tenant),
            config: record.config.clone(),
            tenant,
            function,
            log,
            tally,
            node,
            state: Mutex::default(),
            removed: CancellationToken::new(),
            calls: TaskTracker::new(),
            cold_starts: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    pub(super) fn common(&self, models: Arc<ModelAccess>) -> Common {
        let node = &self.node;
        Common {
            env: self.config.env.clone(),
            revision: self.number,
            log: Arc::clone(&self.log),
            models,
            limits: self.config.limits.clone(),
            stack: node.settings().sandbox.stack,
            hosts: self.config.egress.clone().into(),
            egress: Arc::clone(&node.egress),
            memory: Arc::clone(&node.memory),
            telemetry: Arc::clone(&node.telemetry),
        }
    }

    pub(super) fn woke(&self, cold: Arc<ColdStart>) {
        self.cold_starts.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(cold);
    }

    pub fn cold_starts(&self) -> u64 {
        self.cold_starts.load(Ordering::Relaxed)
    }

    pub fn last_cold_start(&self) -> Option<Arc<ColdStart>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No more calls come: everything of it leaves memory when the running ones have ended.
    pub fn retire(&self) {
        self.removed.cancel();
        self.calls.close();
    }

    /// Waits until the revision is removed and needs its files no more: all calls that were sent here have sandboxes, or
    /// have ended.
    pub async fn drained(&self) {
        self.removed.cancelled().await;
        self.calls.wait().await;
    }
}
