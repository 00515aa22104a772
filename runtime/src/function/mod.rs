//! The deployed functions.
//!
//! ```text
//! config.rs     what a deploy may set
//! revision.rs   a component with its configuration, immutable
//! wake.rs       zero, starting, ready, and back to zero
//! pool.rs       the sandboxes of a revision that is awake
//! ```

mod config;
mod pool;
mod revision;
mod wake;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

pub use config::{Class, FunctionConfig, Isolation, Limits, at_most, span_at_most};
pub use pool::{End, NoAnswer, Ticket};
pub use revision::{Revision, RevisionRecord};
pub use wake::StartError;

use crate::node::Node;
use crate::rates::Limited;
use crate::sandbox::logs::Log;
use crate::store::Record;

/// A function as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FunctionRecord {
    pub tenant: String,
    pub name: String,
    /// Oldest first.
    pub revisions: Vec<RevisionRecord>,
    pub traffic: Vec<Weight>,
}

/// A revision's share of the traffic: its weight over the sum of all weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How often it may be called: as its newest revision says that gets calls.
    pub rate: Limited,
    state: RwLock<Deployed>,
    calls: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default, Clone)]
struct Deployed {
    revisions: Vec<Arc<Revision>>,
    traffic: Vec<(Arc<Revision>, u32)>,
}

impl Function {
    pub fn new(record: &FunctionRecord, node: &Arc<Node>) -> Self {
        let (tenant, name): (Arc<str>, Arc<str>) =
            (record.tenant.as_str().into(), record.name.as_str().into());
        let log = Log::new(node.store.log(&tenant, &name), node.settings.logs.clone());
        let function = Self {
            tenant,
            name,
            log: Arc::new(log),
            rate: Limited::default(),
            state: RwLock::default(),
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        function.update(record, node);
        function
    }

    /// Makes the function what `record` says. Revisions that it keeps go on as they are.
    pub fn update(&self, record: &FunctionRecord, node: &Arc<Node>) {
        let before = self.deployed();
        let revision = |record: &RevisionRecord| {
            let kept = before.revisions.iter().find(|revision| revision.number == record.revision);
            kept.cloned().unwrap_or_else(|| {
                let (tenant, name, log) =
                    (Arc::clone(&self.tenant), Arc::clone(&self.name), Arc::clone(&self.log));
                Arc::new(Revision::new(tenant, name, record, log, Arc::clone(node)))
            })
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
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Deployed { revisions, traffic };
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

    /// The revision that serves call `number`: weights are kept exactly over any long run of calls, and calls that
    /// follow each other are spread.
    pub fn route(&self, number: u64) -> Option<Arc<Revision>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let total: u64 = state.traffic.iter().map(|(_, weight)| u64::from(*weight)).sum();
        // Multiples of the golden ratio fall evenly into any interval (Weyl, 1916).
        let point = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut left = u64::try_from((u128::from(point) * u128::from(total)) >> 64).unwrap_or(0);
        for (revision, weight) in &state.traffic {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return Some(Arc::clone(revision)),
            }
        }
        None
    }

    /// Whether it may be called without a key: so it is if all revisions say so that get calls.
    pub fn is_public(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut called = state.traffic.iter().filter(|(_, weight)| *weight > 0).peekable();
        called.peek().is_some() && called.all(|(revision, _)| revision.config.public)
    }

    /// The function is gone: its revisions leave memory when their calls have ended.
    pub fn rest(&self) {
        for revision in self.revisions() {
            revision.retire();
        }
    }
}
