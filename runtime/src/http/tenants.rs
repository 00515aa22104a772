//! What tenants may have, and use: list, show, set.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;

use super::problem::Problem;
use super::{TenantName, upload, whole};
use crate::access::{Principal, Right};
use crate::config::TenantConfig;
use crate::node::{Node, Used};
use crate::tenant::{ShareConfig, TenantState};

/// What holds for a tenant, what it uses of it, and what was set for it.
#[derive(Debug, Serialize)]
pub struct TenantView {
    pub tenant: String,
    /// What people call it.
    pub display_name: Option<String>,
    /// Whether its keys and functions work.
    pub state: TenantState,
    /// What holds: the operator's defaults where nothing was set.
    #[serde(flatten)]
    pub share: TenantConfig,
    pub used: Used,
    /// What was set for it.
    pub set: ShareConfig,
}

/// All tenants.
#[derive(Debug, Serialize)]
pub struct TenantList {
    pub tenants: Vec<TenantView>,
}

fn view(node: &Node, tenant: &str) -> TenantView {
    let (mut share, set) = node.share(tenant);
    share.gpu_memory = share.gpu_memory.or(share.device_memory);
    TenantView {
        tenant: tenant.to_owned(),
        display_name: set.display_name.clone(),
        state: set.state,
        share,
        used: node.used(tenant),
        set,
    }
}

/// `GET /v1/tenants`
pub async fn list(State(node): State<Arc<Node>>) -> Json<TenantList> {
    Json(TenantList { tenants: node.tenants().iter().map(|tenant| view(&node, tenant)).collect() })
}

/// `GET /v1/tenants/{name}`
pub async fn show(
    State(node): State<Arc<Node>>,
    principal: Principal,
    TenantName(name): TenantName,
) -> Result<Json<TenantView>, Problem> {
    let is_theirs = principal.tenant.as_ref().is_none_or(|tenant| *tenant == name);
    match (is_theirs || principal.may(Right::Operate)) && node.tenants().contains(&*name) {
        true => Ok(Json(view(&node, &name))),
        false => Err(Problem::no_tenant(&name)),
    }
}

/// `PUT /v1/tenants/{name}`: what the body does not have is the operator's default again.
pub async fn set(
    State(node): State<Arc<Node>>,
    TenantName(name): TenantName,
    request: Request,
) -> Result<Json<TenantView>, Problem> {
    let share: ShareConfig = upload::json(&node, request).await?;
    let (change, tenant) = (Arc::clone(&node), name.clone());
    whole(async move { change.set_share(&tenant, share).await }).await?;
    Ok(Json(view(&node, &name)))
}
