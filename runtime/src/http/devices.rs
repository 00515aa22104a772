//! What the devices do, and for whom. Times are in nanoseconds of the counters' own clock, so that whoever asks twice can
//! tell what share of the time between each tenant had.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use weir_gpu::{AccountStats, DeviceStats, GpuPart, ResidentGraph, Stats};

use super::models::is_of;
use super::problem::Problem;
use crate::node::Node;
use crate::schema::DigestText;

/// The devices, what they do, and for whom.
#[derive(Serialize, JsonSchema)]
pub struct Devices {
    /// Nanoseconds since the server's start.
    at_ns: u64,
    devices: Vec<DeviceView>,
    /// The graphs in memory.
    resident: Vec<GraphView>,
    totals: Totals,
    gpu: GpuView,
}

/// A device.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeviceStatus")]
struct DeviceView {
    device: String,
    /// `cpu` or `gpu`.
    kind: String,
    /// Operators that may run at one time.
    lanes: usize,
    /// Lanes in use.
    busy: usize,
    /// Inferences that wait for a lane.
    queued: usize,
    /// The same by tenant.
    queued_by: BTreeMap<String, usize>,
    /// Jobs that have begun and made way for others.
    suspended: usize,
    /// How often a job has made way.
    suspensions: u64,
    /// Nanoseconds that lanes were held, by tenant.
    device_time_ns: BTreeMap<String, u64>,
    memory: MemoryView,
    /// Whether it works no more.
    failed: bool,
    /// Null where the device has no driver that counts.
    driver: Option<DriverView>,
}

/// A device's memory, as it is planned, in bytes. The accounts add up to what is used.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeviceMemory")]
struct MemoryView {
    capacity: u64,
    used: u64,
    accounts: Vec<AccountView>,
}

/// What a tenant has of a device's memory, in bytes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MemoryAccount")]
struct AccountView {
    tenant: String,
    /// The most that it may have; null for as much as the device has.
    quota: Option<u64>,
    weights: u64,
    activations: u64,
    reserve: u64,
}

/// A device's memory as its driver counts it, in bytes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DriverMemory")]
struct DriverView {
    total: u64,
    free: u64,
    /// In tensors and weights.
    pool_used: u64,
    /// In tensors and weights, and kept for such.
    pool_reserved: u64,
    /// In use before the first of them.
    context: u64,
}

/// A graph in memory.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResidentGraph")]
struct GraphView {
    device: String,
    /// Whether it only waits in host memory to be put on the device.
    waits: bool,
    /// Its tenant; `system` for a public model.
    owner: String,
    /// Null for a guest's own bytes.
    model: Option<String>,
    #[schemars(with = "DigestText")]
    digest: String,
    bytes: u64,
    /// How many hold it.
    leases: usize,
    /// Milliseconds that nobody has held it; null while someone does.
    idle_ms: Option<u64>,
    pinned: bool,
    /// What of it runs on the CPU though it is on a GPU.
    host_operators: Vec<String>,
}

/// Counts since the server's start.
#[derive(Serialize, JsonSchema)]
struct Totals {
    loads: u64,
    failed_loads: u64,
    /// Leases on graphs that were there.
    hits: u64,
    unloads: u64,
    /// Graphs that left to make room.
    evictions: u64,
    inferences: u64,
    failed_inferences: u64,
    /// Jobs of more than one inference.
    batches: u64,
    /// Inferences that rode in those.
    batched: u64,
    operators: u64,
}

/// Whether there is a GPU, and what it needs of the machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Gpu")]
struct GpuView {
    available: bool,
    /// Why not: a sentence; null where it is.
    reason: Option<String>,
    /// Those parts that are not there.
    missing: Vec<PartView>,
    parts: Vec<PartView>,
}

/// What a GPU needs of the machine.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "GpuPart")]
struct PartView {
    part: &'static str,
    purpose: &'static str,
    /// Its path; null where it is not there.
    found: Option<PathBuf>,
}

/// `GET /v1/devices`
pub async fn show(State(node): State<Arc<Node>>) -> Result<Json<Devices>, Problem> {
    let folders = node.gpu.clone();
    let looks = tokio::task::spawn_blocking(move || weir_gpu::gpu_parts(&folders));
    let parts = looks.await.map_err(|error| Problem::internal(&error.into()))?;
    let part = |part: GpuPart| PartView { part: part.part, purpose: part.purpose, found: part.found };
    let parts: Vec<PartView> = parts.into_iter().map(part).collect();
    let missing = parts.iter().filter(|part| part.found.is_none()).cloned().collect();
    let reason = node.service.no_gpu().map(|reason| reason.to_string());
    let (at, stats) = (node.started.elapsed(), node.service.stats());
    Ok(Json(Devices {
        at_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
        devices: stats.devices.iter().map(device).collect(),
        resident: stats.resident.iter().map(|graph| resident(&node, graph)).collect(),
        totals: totals(&stats),
        gpu: GpuView { available: reason.is_none(), reason, missing, parts },
    }))
}

fn device(device: &DeviceStats) -> DeviceView {
    let by = |(tenant, queued): &(Arc<str>, usize)| (tenant.to_string(), *queued);
    let time = |(tenant, time): (&Arc<str>, &u64)| (tenant.to_string(), *time);
    DeviceView {
        device: device.name.clone(),
        kind: device.kind.name().to_owned(),
        lanes: device.lanes,
        busy: device.busy,
        queued: device.queued,
        queued_by: device.queued_by.iter().map(by).collect(),
        suspended: device.suspended,
        suspensions: device.suspensions,
        device_time_ns: device.device_time.iter().map(time).collect(),
        memory: MemoryView {
            capacity: device.memory.capacity,
            used: device.memory.used,
            accounts: device.memory.accounts.iter().map(account).collect(),
        },
        failed: device.failed,
        driver: device.driver.map(|driver| DriverView {
            total: driver.total,
            free: driver.free,
            pool_used: driver.pool_used,
            pool_reserved: driver.pool_reserved,
            context: driver.context,
        }),
    }
}

fn account(account: &AccountStats) -> AccountView {
    AccountView {
        tenant: account.tenant.to_string(),
        quota: account.quota,
        weights: account.weights,
        activations: account.activations,
        reserve: account.reserve,
    }
}

fn resident(node: &Node, graph: &ResidentGraph) -> GraphView {
    // A guest's own bytes have no name.
    let model = node.models.first(|model| is_of(graph, model));
    GraphView {
        device: graph.device.to_string(),
        waits: graph.waits,
        owner: graph.owner.to_string(),
        model: model.map(|model| model.record.name.clone()),
        digest: format!("sha256:{}", graph.digest),
        bytes: graph.bytes,
        leases: graph.leases,
        idle_ms: graph.idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
        pinned: graph.pinned,
        host_operators: graph.host_operators.clone(),
    }
}

fn totals(stats: &Stats) -> Totals {
    Totals {
        loads: stats.loads,
        failed_loads: stats.failed_loads,
        hits: stats.hits,
        unloads: stats.unloads,
        evictions: stats.evictions,
        inferences: stats.inferences,
        failed_inferences: stats.failed_inferences,
        batches: stats.batches,
        batched: stats.batched,
        operators: stats.operators,
    }
}
