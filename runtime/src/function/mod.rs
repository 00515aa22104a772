//! The deployed functions.
//!
//! ```text
//! config.rs     what a deploy may set
//! revision.rs   a component with its configuration, immutable
//! wake.rs       zero, starting, ready, and back to zero
//! pool.rs       the sandboxes of a revision that is awake
//! traffic.rs    which revision serves a call, and which are kept
//! ```

mod config;
mod pool;
mod revision;
mod traffic;
mod wake;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use config::{Class, Device, FunctionConfig, Isolation, Limits, at_most, span_at_most};
pub use pool::{End, NoAnswer, Ticket};
pub use revision::{Revision, RevisionRecord};
pub use wake::{Stage, StartError, Use, nanos};

use crate::log::Shipper;
use crate::meter::rest::Rest;
use crate::node::Node;
use crate::rates::Limited;
use crate::sandbox::logs::Log;
use crate::store::Record;
use crate::telemetry::Tally;

/// A function as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FunctionRecord {
    pub tenant: String,
    pub name: String,
    /// Oldest first.
    pub revisions: Vec<RevisionRecord>,
    pub traffic: Vec<Weight>,
    /// A header by whose value callers stay with one revision.
    #[serde(default)]
    pub sticky_header: Option<String>,
    /// The revision that had all of the traffic before it was split or went to another.
    #[serde(default)]
    pub settled_before: Option<u64>,
}

/// A revision's share of the traffic: its weight over the sum of all weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    pub revision: u64,
    pub weight: u32,
}

impl Record for FunctionRecord {
    const KIND: &'static str = "functions";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// A deployed function.
pub struct Function {
    pub tenant: Arc<str>,
    pub name: Arc<str>,
    pub log: Arc<Log>,
    /// What its calls are counted with.
    pub tally: Arc<Tally>,
    /// How often it may be called: as its newest revision says that gets calls.
    pub rate: Limited,
    /// Calls of it that were refused before they went to a revision.
    pub rest: Arc<Rest>,
    state: RwLock<Deployed>,
    calls: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default, Clone)]
struct Deployed {
    revisions: Vec<Arc<Revision>>,
    traffic: Vec<(Arc<Revision>, u32)>,
    sticky_header: Option<Arc<str>>,
}

/// The revision that a call goes to, which is there until the call has a sandbox, whatever becomes of it meanwhile.
pub struct Routed {
    pub revision: Arc<Revision>,
    _call: TaskTrackerToken,
}

impl Function {
    pub fn new(record: &FunctionRecord, node: &Arc<Node>) -> Self {
        let (tenant, name): (Arc<str>, Arc<str>) =
            (record.tenant.as_str().into(), record.name.as_str().into());
        let tally = node.telemetry.function(&tenant, &name, node.settings().metrics);
        let rest = node.meter.rests.open(&tenant, &name, 0, None);
        let shipper = node.exporter.as_ref().filter(|exporter| exporter.has_logs()).map(|exporter| Shipper {
            exporter: Arc::clone(exporter),
            tenant: Arc::clone(&tenant),
            function: Arc::clone(&name),
        });
        let log = Log::new(node.store.log(&tenant, &name), node.settings().logs.clone(), shipper);
        let function = Self {
            tenant,
            name,
            rest,
            log: Arc::new(log),
            tally,
            rate: Limited::default(),
            state: RwLock::default(),
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        function.update(record, node, None);
        function
    }

    /// Makes the function what `record` says. Revisions that it keeps go on as they are, and `started` is one that is new;
    /// those that are no more get no calls from here on, and leave memory with their last one.
    pub fn update(
        &self,
        record: &FunctionRecord,
        node: &Arc<Node>,
        started: Option<Arc<Revision>>,
    ) -> Vec<Arc<Revision>> {
        let before = self.deployed().revisions;
        let revision = |record: &RevisionRecord| {
            let kept =
                before.iter().chain(&started).find(|revision| revision.number == record.revision).cloned();
            kept.unwrap_or_else(|| self.revision(record, node))
        };
        let revisions: Vec<_> = record.revisions.iter().map(revision).collect();
        let weighted = |weight: &Weight| {
            let revision = revisions.iter().find(|revision| revision.number == weight.revision)?;
            Some((Arc::clone(revision), weight.weight))
        };
        let traffic: Vec<_> = record.traffic.iter().filter_map(weighted).collect();
        let called = traffic.iter().filter(|(_, weight)| *weight > 0);
        let newest = called.max_by_key(|(revision, _)| revision.number);
        self.rate.set(newest.and_then(|(revision, _)| revision.config.rate()));
        let sticky_header = record.sticky_header.as_deref().map(Arc::from);
        let gone = |revision: &Arc<Revision>| !revisions.iter().any(|kept| kept.number == revision.number);
        let removed: Vec<_> = before.into_iter().filter(gone).collect();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) =
            Deployed { revisions, traffic, sticky_header };
        removed.iter().for_each(|revision| revision.retire());
        removed
    }

    /// A revision of this function, at zero, which it does not have yet.
    pub fn revision(&self, record: &RevisionRecord, node: &Arc<Node>) -> Arc<Revision> {
        let (tenant, name) = (Arc::clone(&self.tenant), Arc::clone(&self.name));
        let (log, tally) = (Arc::clone(&self.log), Arc::clone(&self.tally));
        Arc::new(Revision::new(tenant, name, record, log, tally, Arc::clone(node)))
    }

    fn deployed(&self) -> Deployed {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a revision has this component.
    pub fn uses(&self, digest: &str) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.revisions.iter().any(|revision| &*revision.digest == digest)
    }

    /// Its revisions, oldest first.
    pub fn revisions(&self) -> Vec<Arc<Revision>> {
        self.deployed().revisions
    }

    /// The number of a new call, counted over the function's life in this server.
    pub fn count_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls so far, and those of them that the function did not answer.
    pub fn counts(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// The revision that serves call `number`: the one that the call's header belongs to, if there is such a header, or
    /// else as the weights say.
    pub fn route(&self, number: u64, headers: &HeaderMap) -> Option<Routed> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let value = state.sticky_header.as_deref().and_then(|header| headers.get(header));
        let weights = state.traffic.iter().map(|(revision, weight)| (revision.number, *weight));
        let index = match value {
            Some(value) => {
                let number = traffic::sticky(value.as_bytes(), weights)?;
                state.traffic.iter().position(|(revision, _)| revision.number == number)
            }
            None => traffic::spread(number, weights.map(|(_, weight)| weight)),
        };
        let (revision, _) = state.traffic.get(index?)?;
        Some(Routed { revision: Arc::clone(revision), _call: revision.calls.token() })
    }

    /// Whether it may be called without a key: so it is if all revisions say so that get calls.
    pub fn is_public(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut called = state.traffic.iter().filter(|(_, weight)| *weight > 0).peekable();
        called.peek().is_some() && called.all(|(revision, _)| revision.config.public)
    }

    /// The function is gone: it gets no calls from here on, and its revisions leave memory when their calls have ended.
    pub fn rest(&self) -> Vec<Arc<Revision>> {
        let state = std::mem::take(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner));
        state.revisions.iter().for_each(|revision| revision.retire());
        state.revisions
    }
}
