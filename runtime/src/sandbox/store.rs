//! One sandbox's store: everything that a guest can reach, with its limits. This is the only place that makes one.
//!
//! A guest has clocks, randomness, its function's own environment, a log for its output, and its models. It has no
//! files, no sockets and no arguments, and its outgoing requests are refused. The interfaces are there, because
//! ordinary toolchains import them; what they give is nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiter, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use super::logs::{CallLog, Log};
use super::wasi_nn::{ModelAccess, View};
use crate::telemetry::Gauge;

/// What the sandboxes of one awake revision have in common.
pub struct Common {
    pub env: BTreeMap<String, String>,
    pub revision: u64,
    pub log: Arc<Log>,
    pub models: Arc<ModelAccess>,
    /// The most bytes of linear memory.
    pub memory: usize,
    /// The most elements of a table.
    pub table_elements: usize,
}

/// A store's data.
pub struct Host {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    egress: NoEgress,
    limits: Limits,
    models: Arc<ModelAccess>,
    deadline: Option<Instant>,
    pub log: CallLog,
    _counted: Gauge,
}

/// A new store with every limit set.
pub fn new_store(engine: &Engine, common: &Common, counted: Gauge) -> Store<Host> {
    let log = CallLog::new(Arc::clone(&common.log), common.revision);
    let mut wasi = WasiCtx::builder();
    wasi.stdout(log.stdout())
        .stderr(log.stderr())
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    for (name, value) in &common.env {
        wasi.env(name, value);
    }
    let host = Host {
        table: ResourceTable::new(),
        wasi: wasi.build(),
        http: WasiHttpCtx::new(),
        egress: NoEgress,
        limits: Limits {
            memory: Limit::new("bytes of memory", common.memory),
            table: Limit::new("table elements", common.table_elements),
            log: log.clone(),
        },
        models: Arc::clone(&common.models),
        deadline: None,
        log,
        _counted: counted,
    };
    let mut store = Store::new(engine, host);
    store.limiter(|host| &mut host.limits);
    // At every tick of the epoch a running guest yields, so that what waits outside it (its deadline among others)
    // gets its turn.
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
    store
}

impl Host {
    /// A call begins.
    pub fn begin(&mut self, number: u64, deadline: Instant) {
        self.deadline = Some(deadline);
        self.log.begin(number);
    }

    /// What `wasi:nn` works on.
    pub fn nn(&mut self) -> View<'_> {
        View { table: &mut self.table, access: &self.models, deadline: self.deadline }
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.egress }
    }
}

/// Memory and tables up to their limits; growth beyond is refused to the guest and noted in its log, once.
struct Limits {
    memory: Limit,
    table: Limit,
    log: CallLog,
}

/// What all of a sandbox's memories, or tables, have together.
struct Limit {
    what: &'static str,
    most: usize,
    used: usize,
    /// The last growth that was allowed, to be taken back if it fails.
    grown: usize,
    told: bool,
}

impl Limit {
    fn new(what: &'static str, most: usize) -> Self {
        Self { what, most, used: 0, grown: 0, told: false }
    }

    fn allow(&mut self, current: usize, desired: usize, log: &CallLog) -> bool {
        let grown = desired.saturating_sub(current);
        let total = self.used.saturating_add(grown);
        if total <= self.most {
            (self.used, self.grown) = (total, grown);
            return true;
        }
        if !std::mem::replace(&mut self.told, true) {
            log.note(format!("refused {total} {}: the most is {}", self.what, self.most));
        }
        false
    }

    fn take_back(&mut self) {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.grown));
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.memory.allow(current, desired, &self.log))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.table.allow(current, desired, &self.log))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.table.take_back();
        Ok(())
    }
}

/// Refuses every outgoing request.
struct NoEgress;

type Sent = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for NoEgress {
    fn send_request(
        &mut self,
        _: Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;

    #[test]
    fn what_fails_to_grow_is_not_counted_and_a_refusal_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::new(folder.path().join("f.jsonl"), LogConfig::default()));
        let call = CallLog::new(Arc::clone(&log), 1);
        let mut limit = Limit::new("bytes of memory", 100);
        // Two memories of 40, one of which grows to 60.
        assert!(limit.allow(0, 40, &call) && limit.allow(0, 40, &call) && limit.allow(40, 60, &call));
        assert!(!limit.allow(60, 61, &call) && !limit.allow(60, 61, &call));
        assert_eq!(log.recent(10).unwrap().len(), 1);
        limit.take_back();
        limit.take_back();
        assert!(limit.allow(40, 60, &call), "the growth that failed can be had again");
        assert!(!limit.allow(60, 61, &call), "and no more than once");
    }
}
