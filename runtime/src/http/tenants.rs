//! What tenants may have of the devices: list, show, set.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::precondition::{Precondition, tagged};
use super::problem::Problem;
use super::query::{Asked, PageLimit};
use super::{TenantName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::function::Class;
use crate::node::Node;
use crate::schema::TenantText;
use crate::tenant::{ShareConfig, TenantState};
use crate::units::Size;

/// A tenant: what holds for it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub struct TenantView {
    #[schemars(with = "TenantText")]
    tenant: String,
    /// What people call it; null where nothing is set.
    display_name: Option<String>,
    state: TenantState,
    /// Its part of the devices' time, against that of others.
    weight: u32,
    /// The most urgent class that its inferences may have.
    class: Class,
    /// The most of its inferences that may wait for a device.
    queue: usize,
    /// Calls of its functions in a second; null for as many as come.
    calls_per_second: Option<NonZeroU32>,
    /// Calls at once after a pause; null for as many as in a second.
    call_burst: Option<NonZeroU32>,
    /// The most bytes that its models and jobs may have of a device; null for the device's own size.
    device_memory: Option<Size>,
    /// The same of the GPU's memory.
    gpu_memory: Option<Size>,
    /// What of this was set for it; the rest is the operator's default.
    set: ShareConfig,
}

/// A page of all tenants, by name.
#[derive(Serialize, JsonSchema)]
pub struct TenantList {
    tenants: Vec<TenantView>,
    /// What to ask for as `after` to have the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What holds for a tenant, and what of that was set for it.
fn view(node: &Node, tenant: &str) -> TenantView {
    let (share, set) = node.share(tenant);
    TenantView {
        tenant: tenant.to_owned(),
        display_name: set.display_name.clone(),
        state: set.state,
        weight: share.weight,
        class: share.class,
        queue: share.queue,
        calls_per_second: share.calls_per_second,
        call_burst: share.call_burst,
        device_memory: share.device_memory,
        gpu_memory: share.gpu_memory.or(share.device_memory),
        set,
    }
}

/// The query of `GET /v1/tenants`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantQuery {
    #[serde(default)]
    #[schemars(with = "Option<PageLimit>")]
    limit: PageLimit,
    /// `next` of the page before.
    after: Option<String>,
    /// Only those whose names begin so.
    #[serde(default)]
    prefix: String,
    /// Only those that are in this state.
    state: Option<TenantState>,
}

/// `GET /v1/tenants`
pub async fn list(State(node): State<Arc<Node>>, Asked(query): Asked<TenantQuery>) -> Json<TenantList> {
    let mut tenants: Vec<_> = node.tenants().into_iter().collect();
    tenants.retain(|tenant| {
        tenant.starts_with(&query.prefix)
            && query.state.is_none_or(|state| node.share(tenant).1.state == state)
    });
    let (page, next) = query.limit.page(tenants, query.after, |tenant| tenant.to_string());
    Json(TenantList { tenants: page.iter().map(|tenant| view(&node, tenant)).collect(), next })
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
