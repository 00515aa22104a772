//! Models: upload, configure, list, signature, delete.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_gpu::{Format, ResidentGraph, SYSTEM};

use super::guard::Tenant;
use super::precondition::{Precondition, tagged};
use super::problem::{Code, Problem};
use super::{ModelName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::model::{Model, ModelConfig};
use crate::name::Name;
use crate::node::Node;

/// The query of `PUT /v1/models/{name}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    format: String,
}

fn view(model: &Model, resident: &[ResidentGraph]) -> Value {
    let record = &model.record;
    let held = resident
        .iter()
        .filter(|graph| is_of(graph, model))
        .map(|graph| json!({ "device": &*graph.device, "waits": graph.waits, "leases": graph.leases, "bytes": graph.bytes }))
        .collect::<Vec<_>>();
    json!({
        "model": record.name,
        "format": record.format,
        "digest": format!("sha256:{}", record.digest),
        "bytes": record.bytes,
        "inputs": record.inputs,
        "outputs": record.outputs,
        "created": record.created,
        "visibility": record.config.visibility,
        "config": record.config,
        "resident": held,
    })
}

/// Whether a graph in memory is a model's.
pub fn is_of(graph: &ResidentGraph, model: &Model) -> bool {
    let owner = if model.source.policy.public { SYSTEM } else { &model.record.tenant };
    *graph.owner == *owner && graph.digest == model.source.digest
}

/// `PUT /v1/models/{name}?format=onnx`
pub async fn upload(
    State(node): State<Arc<Node>>,
    tenant: Result<Tenant, Problem>,
    name: Result<ModelName, Problem>,
    query: Result<Query<UploadQuery>, QueryRejection>,
    by: Actor,
    condition: Result<Precondition, Problem>,
    body: Body,
) -> Result<Response, Problem> {
    let meant = tenant.and_then(|tenant| Ok((tenant, meant(name, query)?, condition?)));
    let (Tenant(tenant), (name, format), condition) = match meant {
        Ok(meant) => meant,
        Err(problem) => return Err(upload::refused(problem, body).await),
    };
    let (place, body) = upload::place(&node, body).await?;
    let upload = upload::model(&node, body).await?;
    let change = Arc::clone(&node);
    let (model, tag) = whole(async move {
        let model = change.put_model(&tenant, &name, format, upload, &by, &condition).await;
        drop(place);
        model
    })
    .await?;
    Ok(tag.on((StatusCode::CREATED, Json(view(&model, &node.service.stats().resident)))))
}

/// `PUT /v1/models/{name}/config`
pub async fn configure(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    principal: Principal,
    ModelName(name): ModelName,
    by: Actor,
    condition: Precondition,
    request: Request,
) -> Result<Response, Problem> {
    let config: ModelConfig = upload::json(&node, request).await?;
    if config.is_public() && !principal.may(Right::Operate) {
        let detail = "visibility: only the operator makes a model public";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let change = Arc::clone(&node);
    let (model, tag) =
        whole(async move { change.configure_model(&tenant, &name, config, &by, &condition).await }).await?;
    Ok(tag.on(Json(view(&model, &node.service.stats().resident))))
}

/// The model that an upload is for, and its format.
fn meant(
    name: Result<ModelName, Problem>,
    query: Result<Query<UploadQuery>, QueryRejection>,
) -> Result<(Name, Format), Problem> {
    let ModelName(name) = name?;
    let Query(UploadQuery { format }) = query.map_err(|error| {
        Problem::new(
            Code::InvalidRequest,
            format!("say the model's format: ?format=onnx ({})", error.body_text()),
        )
    })?;
    Ok((name, format.parse()?))
}

/// `GET /v1/models`
pub async fn list(State(node): State<Arc<Node>>, Tenant(tenant): Tenant) -> Json<Value> {
    let resident = node.service.stats().resident;
    let models = node.models.of(&tenant);
    let models: Vec<Value> = models.iter().map(|model| view(model, &resident)).collect();
    Json(json!({ "models": models }))
}

/// `GET /v1/models/{name}`
pub async fn show(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    ModelName(name): ModelName,
) -> Result<Response, Problem> {
    let model = node.models.find(&tenant, &name).ok_or_else(|| Problem::no_model(&name))?;
    let answer = Json(view(&model, &node.service.stats().resident));
    let kept = node.kept_model(&model.record.tenant, &name).await?;
    Ok(tagged(kept.as_ref(), answer))
}

/// `DELETE /v1/models/{name}`
pub async fn delete(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    ModelName(name): ModelName,
    by: Actor,
    condition: Precondition,
) -> Result<StatusCode, Problem> {
    whole(async move { node.delete_model(&tenant, &name, &by, &condition).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
