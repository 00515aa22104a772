//! What the devices do, and for whom. Times are in nanoseconds of the counters' own clock, so that whoever asks twice can
//! tell what share of the time between each tenant had.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use weir_gpu::{AccountStats, DeviceStats, ResidentGraph, Stats};

use super::models::is_of;
use super::problem::Problem;
use crate::node::Node;

/// `GET /v1/devices`
pub async fn show(State(node): State<Arc<Node>>) -> Result<Json<Value>, Problem> {
    let folders = node.gpu.clone();
    let looks = tokio::task::spawn_blocking(move || weir_gpu::gpu_parts(&folders));
    let parts = looks.await.map_err(|error| Problem::internal(&error.into()))?;
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| json!({ "part": part.part, "purpose": part.purpose, "found": part.found }))
        .collect();
    let missing: Vec<&Value> = parts.iter().filter(|part| part.get("found") == Some(&Value::Null)).collect();
    let reason = node.service.no_gpu();
    let (at, stats) = (node.started.elapsed(), node.service.stats());
    Ok(Json(json!({
        "at_ns": u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
        "devices": stats.devices.iter().map(device).collect::<Vec<_>>(),
        "resident": stats.resident.iter().map(|graph| resident(&node, graph)).collect::<Vec<_>>(),
        "totals": totals(&stats),
        "gpu": {
            "available": reason.is_none(),
            "reason": reason,
            "missing": missing,
            "parts": parts,
        },
    })))
}

fn device(device: &DeviceStats) -> Value {
    let queued: BTreeMap<&str, usize> =
        device.queued_by.iter().map(|(tenant, queued)| (&**tenant, *queued)).collect();
    let time: BTreeMap<&str, u64> =
        device.device_time.iter().map(|(tenant, time)| (&**tenant, *time)).collect();
    json!({
        "device": device.name,
        "kind": device.kind.name(),
        "lanes": device.lanes,
        "busy": device.busy,
        "queued": device.queued,
        "queued_by": queued,
        "suspended": device.suspended,
        "suspensions": device.suspensions,
        "device_time_ns": time,
        "memory": {
            "capacity": device.memory.capacity,
            "used": device.memory.used,
            "accounts": device.memory.accounts.iter().map(account).collect::<Vec<_>>(),
        },
        "failed": device.failed,
        "driver": device.driver.map(|driver| json!({
            "total": driver.total,
            "free": driver.free,
            "pool_used": driver.pool_used,
            "pool_reserved": driver.pool_reserved,
            "context": driver.context,
        })),
    })
}

fn account(account: &AccountStats) -> Value {
    json!({
        "tenant": &*account.tenant,
        "quota": account.quota,
        "weights": account.weights,
        "activations": account.activations,
        "reserve": account.reserve,
    })
}

fn resident(node: &Node, graph: &ResidentGraph) -> Value {
    // A guest's own bytes have no name.
    let model = node.models.first(|model| is_of(graph, model));
    json!({
        "device": &*graph.device,
        "waits": graph.waits,
        "owner": &*graph.owner,
        "model": model.map(|model| model.record.name.clone()),
        "digest": format!("sha256:{}", graph.digest),
        "bytes": graph.bytes,
        "leases": graph.leases,
        "idle_ms": graph.idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
        "pinned": graph.pinned,
        "host_operators": graph.host_operators,
    })
}

fn totals(stats: &Stats) -> Value {
    json!({
        "loads": stats.loads,
        "failed_loads": stats.failed_loads,
        "hits": stats.hits,
        "unloads": stats.unloads,
        "evictions": stats.evictions,
        "inferences": stats.inferences,
        "failed_inferences": stats.failed_inferences,
        "batches": stats.batches,
        "batched": stats.batched,
        "operators": stats.operators,
    })
}
