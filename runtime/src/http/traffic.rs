//! A function's traffic: shared out, and rolled back.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http_body::Body as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guard::Tenant;
use super::precondition::{Precondition, Tag};
use super::problem::Problem;
use super::{FunctionName, upload, whole};
use crate::access::Principal;
use crate::audit::Actor;
use crate::function::{FunctionRecord, Weight};
use crate::node::{Node, Traffic};
use crate::schema::HeaderText;

/// The body of `PUT /v1/functions/{name}/traffic`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Split {
    #[schemars(length(min = 1))]
    traffic: Vec<Weight>,
    /// The header by whose value callers stay with one revision; none when absent.
    #[serde(default)]
    #[schemars(with = "Option<HeaderText>")]
    sticky_header: Option<String>,
}

/// The body of `POST /v1/functions/{name}/rollback`, which may be empty.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rollback {
    /// The revision that gets all of the traffic; the one that had it before when absent.
    revision: Option<u64>,
}

/// How a function's calls are shared out.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Traffic")]
pub struct TrafficView {
    /// Each revision's weight; its share is that over the sum of all.
    traffic: Vec<Weight>,
    /// The header by whose value callers stay with one revision.
    sticky_header: Option<String>,
    /// The revision that a rollback goes to that names none; null if there is none.
    rollback_to: Option<u64>,
}

impl From<FunctionRecord> for TrafficView {
    fn from(record: FunctionRecord) -> Self {
        let rollback_to = record.rollback_target();
        Self { traffic: record.traffic, sticky_header: record.sticky_header, rollback_to }
    }
}

/// `PUT /v1/functions/{name}/traffic`
pub async fn set(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    by: Actor,
    condition: Precondition,
    request: Request,
) -> Result<Response, Problem> {
    let Split { traffic: weights, sticky_header } = upload::json(&node, request).await?;
    let split = Traffic::Split { weights, sticky_header };
    whole(async move { node.set_traffic(&tenant, &name, split, &by, &condition).await }).await.map(answer)
}

/// `POST /v1/functions/{name}/rollback`. One that names no revision goes there and back when it is sent twice, but with an
/// `Idempotency-Key`.
pub async fn rollback(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    by: Actor,
    condition: Precondition,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let Rollback { revision } = match request.body().is_end_stream() {
        true => Rollback::default(),
        false => upload::json(&node, request).await?,
    };
    let claim = node.once.claim(&principal, &headers, &("rollback", &*tenant, &*name, revision))?;
    let changed = async move {
        let rollback = Traffic::Rollback(revision);
        let changed = node.set_traffic(&tenant, &name, rollback, &by, &condition).await;
        if let (Some(claim), Some(to)) =
            (claim, changed.as_ref().ok().and_then(|(record, _)| record.settled()))
        {
            claim.rolled_back(to);
        }
        changed
    };
    whole(changed).await.map(answer)
}

fn answer((record, tag): (FunctionRecord, Tag)) -> Response {
    tag.on(Json(TrafficView::from(record)))
}
