//! What tenants may have of the devices: list, show, set.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::precondition::{Precondition, tagged};
use super::problem::Problem;
use super::{TenantName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::node::Node;
use crate::tenant::ShareConfig;

/// What holds for a tenant, and what of that was set for it.
fn view(node: &Node, tenant: &str) -> Value {
    let (share, set) = node.share(tenant);
    json!({
        "tenant": tenant,
        "display_name": set.display_name,
        "state": set.state,
        "weight": share.weight,
        "class": share.class,
        "queue": share.queue,
        "calls_per_second": share.calls_per_second,
        "call_burst": share.call_burst,
        "device_memory": share.device_memory,
        "gpu_memory": share.gpu_memory.or(share.device_memory),
        "set": set,
    })
}

/// `GET /v1/tenants`
pub async fn list(State(node): State<Arc<Node>>) -> Json<Value> {
    let tenants: Vec<Value> = node.tenants().iter().map(|tenant| view(&node, tenant)).collect();
    Json(json!({ "tenants": tenants }))
}

/// `GET /v1/tenants/{name}`
pub async fn show(
    State(node): State<Arc<Node>>,
    principal: Principal,
    TenantName(name): TenantName,
) -> Result<Response, Problem> {
    let is_theirs = principal.tenant.as_ref().is_none_or(|tenant| *tenant == name);
    if !(is_theirs || principal.may(Right::Operate)) || !node.tenants().contains(&*name) {
        return Err(Problem::no_tenant(&name));
    }
    let answer = Json(view(&node, &name));
    let kept = node.kept_tenant(&name).await?;
    Ok(tagged(kept.as_ref(), answer))
}

/// `PUT /v1/tenants/{name}`: what the body does not have is the operator's default again.
pub async fn set(
    State(node): State<Arc<Node>>,
    TenantName(name): TenantName,
    by: Actor,
    condition: Precondition,
    request: Request,
) -> Result<Response, Problem> {
    let share: ShareConfig = upload::json(&node, request).await?;
    let (change, tenant) = (Arc::clone(&node), name.clone());
    let tag = whole(async move { change.set_share(&tenant, share, &by, &condition).await }).await?;
    Ok(tag.on(Json(view(&node, &name))))
}
