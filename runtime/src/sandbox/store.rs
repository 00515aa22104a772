//! One sandbox's store: everything that a guest can reach, with its limits. This is the only place that makes one.
//!
//! A guest has clocks, randomness, its function's own environment, a log for its output, and its models. It has no
//! files, no sockets and no arguments, and its outgoing requests are refused. The interfaces are there, because
//! ordinary toolchains import them; what they give is nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::OwnedSemaphorePermit;
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
    _permit: OwnedSemaphorePermit,
}

/// A new store with every limit set. `permit` is one of the node's sandboxes.
pub fn new_store(
    engine: &Engine,
    common: &Common,
    permit: OwnedSemaphorePermit,
    counted: Gauge,
) -> Store<Host> {
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
        limits: Limits { memory: common.memory, table_elements: common.table_elements, log: log.clone() },
        models: Arc::clone(&common.models),
        deadline: None,
        log,
        _counted: counted,
        _permit: permit,
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

/// Memory and tables up to their limits; growth beyond is refused to the guest and noted in its log.
struct Limits {
    memory: usize,
    table_elements: usize,
    log: CallLog,
}

impl Limits {
    fn allow(&self, what: &str, desired: usize, most: usize) -> bool {
        if desired <= most {
            return true;
        }
        self.log.note(format!("refused {desired} {what}: the most is {most}"));
        false
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.allow("bytes of memory", desired, self.memory))
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.allow("table elements", desired, self.table_elements))
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
