//! What tenants may have, and use: list, show, set.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::precondition::{Precondition, tagged};
use super::problem::Problem;
use super::query::{Asked, PageLimit};
use super::{TenantName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::config::TenantConfig;
use crate::node::{Node, ShareOutcome, Used};
use crate::schema::TenantText;
use crate::tenant::{ShareConfig, TenantState};

/// A tenant: what holds for it, and what it uses of that.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub struct TenantView {
    #[schemars(with = "TenantText")]
    tenant: String,
    /// What people call it; null where nothing is set.
    display_name: Option<String>,
    /// Whether its keys and functions work.
    state: TenantState,
    /// What holds: the operator's defaults where nothing was set.
    #[serde(flatten)]
    share: TenantConfig,
    /// What it uses.
    used: Used,
    /// What was set for it.
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

/// What holds for a tenant, what it uses of it, and what was set for it.
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

/// `PUT /v1/tenants/{name}`: what the body does not have is the operator's default again. 201 for one that was not there.
pub async fn set(
    State(node): State<Arc<Node>>,
    TenantName(name): TenantName,
    by: Actor,
    condition: Precondition,
    request: Request,
) -> Result<Response, Problem> {
    let share: ShareConfig = upload::json(&node, request).await?;
    let (change, tenant) = (Arc::clone(&node), name.clone());
    let (outcome, tag) =
        whole(async move { change.set_share(&tenant, share, &by, &condition).await }).await?;
    let status = match outcome {
        ShareOutcome::Made => StatusCode::CREATED,
        ShareOutcome::Changed => StatusCode::OK,
    };
    Ok(tag.on((status, Json(view(&node, &name)))))
}
