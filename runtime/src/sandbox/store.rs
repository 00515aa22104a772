//! One sandbox's store: everything that a guest can reach, with its limits. This is the only place that makes one.
//!
//! A guest has clocks, randomness, its function's own environment, a log for its output, its models, and the hosts that
//! its function's configuration names. It has no files, no sockets and no arguments. The interfaces are there, because
//! ordinary toolchains import them; what they give is nothing.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::http::types::Method;
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse};
use wasmtime_wasi_http::{FieldMap, WasiHttpCtx, WasiHttpCtxView, WasiHttpView, p3};

use super::egress::{Egress, HostPattern, Outgoing, PIECE, Refusal};
use super::logs::{CallLog, Log};
use super::memory::{Account, Held, NodeMemory};
use super::met::{Engines, Met};
use super::meter::Meter;
use super::wasi_nn::{ModelAccess, View};
use crate::function::Limits as FunctionLimits;
use crate::limits::{Exceeded, Limit};
use crate::meter::bill::Bill;
use crate::telemetry::{Gauge, Telemetry};
use crate::trace::Recording;
use crate::units::Size;

/// The most random bytes that a guest gets in one call.
const RANDOM_BYTES: u64 = 1 << 20;

/// What an element of a table, and an entry among a header map's, cost the host. About what they take.
const TABLE_ELEMENT: usize = 8;
const HEADER_ENTRY: usize = 64;

/// What the sandboxes of one awake revision have in common.
pub struct Common {
    pub env: BTreeMap<String, String>,
    pub revision: u64,
    pub log: Arc<Log>,
    pub models: Arc<ModelAccess>,
    pub limits: FunctionLimits,
    /// How deep its calls may go.
    pub stack: Size,
    /// Hosts that it may send requests to.
    pub hosts: Arc<[HostPattern]>,
    pub egress: Arc<Egress>,
    pub memory: Arc<NodeMemory>,
    pub telemetry: Arc<Telemetry>,
}

/// A store's data.
pub struct Host {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outgoing: Outgoing,
    limits: Limits,
    models: Arc<ModelAccess>,
    meter: Arc<Meter>,
    deadline: Option<Instant>,
    bill: Option<Arc<Bill>>,
    /// Header maps and the like, as of the last audit.
    kept: Held,
    pub log: CallLog,
    pub met: Met,
    _counted: Gauge,
}

/// A new store with every limit set.
///
/// # Errors
/// When the node's memory is used up.
pub fn new_store(engine: &Engine, common: &Common) -> Result<Store<Host>, Exceeded> {
    let FunctionLimits { resources, .. } = common.limits;
    let account = Account::open(Arc::clone(&common.memory), common.limits.host_bytes.as_usize())?;
    let telemetry = &common.telemetry;
    let log = CallLog::new(Arc::clone(&common.log), common.revision, &common.limits, Arc::clone(telemetry));
    let met = Met::new(log.clone(), Arc::clone(telemetry));
    let mut wasi = WasiCtx::builder();
    wasi.stdout(log.stdout())
        .stderr(log.stderr())
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(RANDOM_BYTES);
    for (name, value) in &common.env {
        wasi.env(name, value);
    }
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(common.limits.header_bytes.as_usize());
    let mut table = ResourceTable::new();
    table.set_max_capacity(count(resources));
    let host = Host {
        table,
        wasi: wasi.build(),
        http,
        outgoing: outgoing(common, met.clone()),
        limits: Limits {
            memory: Growth::new(Limit::Memory, "bytes of memory", common.limits.memory.as_usize(), 1),
            table: Growth::new(
                Limit::TableElements,
                "table elements",
                count(common.limits.table_elements),
                TABLE_ELEMENT,
            ),
            instances: count(common.limits.instances),
            memories: count(common.limits.memories),
            tables: count(common.limits.tables),
            account: Arc::clone(&account),
            met: met.clone(),
        },
        models: Arc::clone(&common.models),
        meter: Arc::default(),
        deadline: None,
        bill: None,
        kept: account.hold(0)?,
        log,
        met,
        _counted: common.telemetry.sandbox(),
    };
    let mut store = Store::new(engine, host);
    store.limiter(|host| &mut host.limits);
    store.set_hostcall_fuel(common.limits.host_bytes.as_usize());
    store.set_max_component_handles(count(resources));
    if let Some(table) = store.concurrent_resource_table() {
        table.set_max_capacity(count(resources));
    }
    // At every tick of the epoch a running guest yields, so that what waits outside it (its deadline among others)
    // gets its turn.
    let cpu_time = common.limits.cpu_time;
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |mut store| {
        store.data_mut().within(cpu_time)?;
        Ok(UpdateDeadline::Yield(1))
    });
    Ok(store)
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn outgoing(common: &Common, met: Met) -> Outgoing {
    let most = common.limits.outbound_requests;
    let refused = move |refusal: Refusal| match refusal {
        Refusal::TooMany { .. } => met.note(Exceeded::new(Limit::OutboundRequests, refusal.to_string())),
        Refusal::Host { .. } | Refusal::Address { .. } => met.refused(&refusal),
    };
    Outgoing::new(Arc::clone(&common.egress), Arc::clone(&common.hosts), most, Arc::new(refused))
}

impl Common {
    /// The limits that the engine enforces.
    pub fn engines(&self) -> Engines {
        let FunctionLimits { resources, header_bytes, host_bytes, instances, memories, tables, .. } =
            self.limits;
        Engines { stack: self.stack, resources, header_bytes, host_bytes, instances, memories, tables }
    }
}

impl Host {
    /// A call begins, on this bill and in this trace.
    pub fn begin(&mut self, number: u64, deadline: Instant, bill: Option<Arc<Bill>>, trace: Recording) {
        self.deadline = Some(deadline);
        self.log.begin(number, Some(trace.clone()));
        self.met.begin();
        let start = self.meter.begin();
        if let Some(bill) = &bill {
            bill.enter(start, Arc::clone(&self.meter), Arc::clone(&self.limits.account));
        }
        self.outgoing.begin(bill.clone(), Some(trace));
        self.bill = bill;
    }

    /// The guest is done with a call, and with its bill. To be called on its own thread.
    pub fn end(&mut self) {
        self.outgoing.begin(None, None);
        let spent = self.meter.restart();
        if let Some(bill) = self.bill.take() {
            bill.leave(spent);
        }
    }

    /// Counts the guest's time.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// What `wasi:nn` works on.
    pub fn nn(&mut self) -> View<'_> {
        View {
            table: &mut self.table,
            access: &self.models,
            deadline: self.deadline,
            account: &self.limits.account,
            meter: &self.meter,
            met: &self.met,
            bill: self.bill.as_ref(),
        }
    }

    /// Whether the running guest may go on.
    fn within(&mut self, cpu_time: Duration) -> Result<(), Exceeded> {
        self.met.overdrawn()?;
        computed(&self.meter, cpu_time)
    }

    /// Counts what the host keeps for the guest in resources that do not say so themselves. It may be that the host just
    /// took more than it may; then the guest ends as soon as it stops or its thread is wanted.
    fn audit(&mut self) {
        let kept = self.table.iter_mut().map(kept).fold(0, usize::saturating_add);
        if let Err(exceeded) = self.kept.resize(kept) {
            self.met.overdraw(exceeded);
        }
    }
}

/// Whether a guest has computed no longer than it may.
///
/// # Errors
/// When it has.
pub fn computed(meter: &Meter, most: Duration) -> Result<(), Exceeded> {
    let spent = meter.spent();
    if spent <= most {
        return Ok(());
    }
    let whole = Duration::from_millis(u64::try_from(spent.as_millis()).unwrap_or(u64::MAX));
    let (spent, most) = (humantime::format_duration(whole), humantime::format_duration(most));
    Err(Exceeded::new(Limit::CpuTime, format!("the guest has computed for {spent}; the most is {most}")))
}

/// Bytes that a resource of `wasi:http` keeps. What is not one counts as nothing: it is small, and there are only so
/// many, or it is counted where it is made.
fn kept(entry: &mut (dyn Any + Send)) -> usize {
    let headers = |headers: &FieldMap| {
        let entry = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            HEADER_ENTRY + name.as_str().len() + value.len()
        };
        headers.iter().map(entry).fold(0, usize::saturating_add)
    };
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let body = |there: bool| if there { 2 * PIECE } else { 0 };
    if let Some(fields) = entry.downcast_ref::<FieldMap>() {
        headers(fields)
    } else if let Some(response) = entry.downcast_ref::<HostOutgoingResponse>() {
        headers(&response.headers) + body(response.body.is_some())
    } else if let Some(request) = entry.downcast_ref::<HostOutgoingRequest>() {
        let method = if let Method::Other(method) = &request.method { method.len() } else { 0 };
        let texts = method + text(&request.authority) + text(&request.path_with_query);
        headers(&request.headers) + texts + body(request.body.is_some())
    } else if entry.is::<HostOutgoingBody>() {
        body(true)
    } else if let Some(response) = entry.downcast_ref::<HostIncomingResponse>() {
        headers(&response.headers)
    } else if let Some(request) = entry.downcast_ref::<p3::Request>() {
        let authority = request.authority.as_ref().map_or(0, |authority| authority.as_str().len());
        headers(&request.headers) + request.method.as_str().len() + authority
    } else if let Some(response) = entry.downcast_ref::<p3::Response>() {
        headers(&response.headers)
    } else {
        0
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.audit();
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outgoing }
    }
}

/// Memory and tables up to their limits; growth beyond is refused to the guest.
struct Limits {
    memory: Growth,
    table: Growth,
    instances: usize,
    memories: usize,
    tables: usize,
    account: Arc<Account>,
    met: Met,
}

/// What all of a sandbox's memories, or tables, have together.
struct Growth {
    limit: Limit,
    what: &'static str,
    most: usize,
    /// Bytes that one of what is counted takes.
    size: usize,
    used: usize,
    /// The last growth that was allowed, to be taken back if it fails.
    grown: usize,
}

impl Growth {
    fn new(limit: Limit, what: &'static str, most: usize, size: usize) -> Self {
        Self { limit, what, most, size, used: 0, grown: 0 }
    }

    fn allow(&mut self, current: usize, desired: usize, account: &Account) -> Result<(), Exceeded> {
        let grown = desired.saturating_sub(current);
        let total = self.used.saturating_add(grown);
        if total > self.most {
            let detail = format!("refused {total} {}: the most is {}", self.what, self.most);
            return Err(Exceeded::new(self.limit, detail));
        }
        account.grow(grown.saturating_mul(self.size))?;
        (self.used, self.grown) = (total, grown);
        Ok(())
    }

    fn take_back(&mut self, account: &Account) {
        let grown = std::mem::take(&mut self.grown);
        self.used = self.used.saturating_sub(grown);
        account.shrink(grown.saturating_mul(self.size));
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let grown = self.memory.allow(current, desired, &self.account);
        Ok(grown.map_err(|exceeded| self.met.note(exceeded)).is_ok())
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back(&self.account);
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let grown = self.table.allow(current, desired, &self.account);
        Ok(grown.map_err(|exceeded| self.met.note(exceeded)).is_ok())
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.table.take_back(&self.account);
        Ok(())
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn memories(&self) -> usize {
        self.memories
    }

    fn tables(&self) -> usize {
        self.tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_to_grow_is_not_counted() {
        let node = Arc::new(NodeMemory::new(Size::mib(1)));
        let account = Account::open(Arc::clone(&node), 0).unwrap();
        let empty = node.used();
        let mut limit = Growth::new(Limit::Memory, "bytes of memory", 100, 2);
        let mut allow = |from, to| limit.allow(from, to, &account).map_err(|exceeded| exceeded.detail);
        // Two memories of 40, one of which grows to 60.
        allow(0, 40).unwrap();
        allow(0, 40).unwrap();
        allow(40, 60).unwrap();
        assert_eq!(allow(60, 61).unwrap_err(), "refused 101 bytes of memory: the most is 100");
        assert_eq!(node.used() - empty, 200);
        limit.take_back(&account);
        limit.take_back(&account);
        assert_eq!(node.used() - empty, 160);
        assert!(limit.allow(40, 60, &account).is_ok(), "the growth that failed can be had again");
        assert!(limit.allow(60, 61, &account).is_err(), "and no more than once");
    }
}
