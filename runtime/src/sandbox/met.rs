//! The limits that a call has met: each told once, to its function's log and to the metrics, and kept for whoever must
//! say why the call failed.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi_http::FieldMapError;

use super::egress::Refusal;
use super::logs::CallLog;
use crate::limits::{Exceeded, Limit};
use crate::telemetry::Telemetry;

/// One sandbox's record of limits. Clones share it.
#[derive(Clone)]
pub struct Met {
    log: CallLog,
    telemetry: Arc<Telemetry>,
    met: Arc<Mutex<Vec<Exceeded>>>,
    /// What must end the guest, found where that cannot be done.
    overdrawn: Arc<OnceLock<Exceeded>>,
}

impl Met {
    pub fn new(log: CallLog, telemetry: Arc<Telemetry>) -> Self {
        Self { log, telemetry, met: Arc::default(), overdrawn: Arc::default() }
    }

    fn met(&self) -> MutexGuard<'_, Vec<Exceeded>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new call begins: what the one before met is its own.
    pub fn begin(&self) {
        self.met().clear();
    }

    /// A limit was met.
    pub fn note(&self, exceeded: Exceeded) {
        let mut met = self.met();
        if met.iter().any(|before| before.limit == exceeded.limit) {
            return;
        }
        self.telemetry.limit(exceeded.limit);
        self.log.note(format!("{}: {exceeded}", exceeded.limit.field()));
        met.push(exceeded);
    }

    /// The guest must end.
    pub fn overdraw(&self, exceeded: Exceeded) {
        // The first reason is as good as a later one.
        let _ = self.overdrawn.set(exceeded);
    }

    /// # Errors
    /// When the guest must end.
    pub fn overdrawn(&self) -> Result<(), Exceeded> {
        self.overdrawn.get().map_or(Ok(()), |exceeded| Err(exceeded.clone()))
    }

    /// An outgoing request was refused.
    pub fn refused(&self, refusal: &Refusal) {
        self.telemetry.egress_refused();
        self.log.note(refusal.to_string());
    }

    /// The last limit that was met, for a call that failed.
    pub fn last(&self) -> Option<Exceeded> {
        self.met().last().cloned()
    }
}

/// The limit that ended a guest, where one did. `resources`, `header_bytes` and `stack` are what the limits are, for
/// those that the engine enforces and tells without numbers.
pub fn exceeded(error: &wasmtime::Error, most: &Engines) -> Option<Exceeded> {
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        return Some(exceeded.clone());
    }
    if let Some(Trap::StackOverflow) = error.downcast_ref::<Trap>() {
        let detail = format!("the guest's calls went deeper than its stack of {}", most.stack);
        return Some(Exceeded::new(Limit::Stack, detail));
    }
    let handles = || {
        let detail = format!("the guest held {} handles, the most that it may", most.resources);
        Exceeded::new(Limit::Resources, detail)
    };
    let headers = || {
        let detail = format!("the guest's headers passed {}, the most for one set", most.header_bytes);
        Exceeded::new(Limit::HeaderBytes, detail)
    };
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        return Some(handles());
    }
    if let Some(FieldMapError::TotalSizeTooBig | FieldMapError::TooManyFields) =
        error.downcast_ref::<FieldMapError>()
    {
        return Some(headers());
    }
    // The rest have no type of their own.
    let text = error.root_cause().to_string();
    let counted = |what: &str| text.contains(&format!("resource limit exceeded: {what} count"));
    Some(match () {
        () if text.contains("handle limit exceeded") => handles(),
        () if text.contains("total size of fields exceeds") => headers(),
        () if text.contains("fuel allocated for hostcalls") => Exceeded::new(
            Limit::HostBytes,
            format!(
                "the guest gave the host more than {} in one call, the most that it may",
                most.host_bytes
            ),
        ),
        () if counted("instance") => Exceeded::new(
            Limit::Instances,
            format!(
                "the component is made of more than {} core instances, the most that it may",
                most.instances
            ),
        ),
        () if counted("memory") => Exceeded::new(
            Limit::Memories,
            format!("the component has more than {} memories, the most that it may", most.memories),
        ),
        () if counted("table") => Exceeded::new(
            Limit::Tables,
            format!("the component has more than {} tables, the most that it may", most.tables),
        ),
        () => return None,
    })
}

/// The limits that the engine enforces.
#[derive(Debug, Clone)]
pub struct Engines {
    pub stack: crate::units::Size,
    pub resources: u32,
    pub header_bytes: crate::units::Size,
    pub host_bytes: crate::units::Size,
    pub instances: u32,
    pub memories: u32,
    pub tables: u32,
}
