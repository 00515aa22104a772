//! Models: upload, configure, list, signature, delete.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_gpu::{Format, ResidentGraph, SYSTEM};

use super::guard::Tenant;
use super::precondition::{Precondition, tagged};
use super::problem::{Code, Problem};
use super::query::{Asked, PageLimit};
use super::{ModelName, upload, whole};
use crate::access::{Principal, Right};
use crate::audit::Actor;
use crate::model::{Model, ModelConfig, SpecRecord, Visibility};
use crate::name::Name;
use crate::node::Node;
use crate::schema::{DigestText, ModelText, MomentText};

/// The query of `PUT /v1/models/{name}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    /// What the bytes are, such as `onnx`.
    format: String,
}

/// A model.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelView {
    #[schemars(with = "ModelText")]
    model: String,
    format: String,
    #[schemars(with = "DigestText")]
    digest: String,
    bytes: u64,
    inputs: Vec<SpecRecord>,
    outputs: Vec<SpecRecord>,
    #[schemars(with = "MomentText")]
    created: String,
    visibility: Visibility,
    config: ModelConfig,
    /// Where its graph is in memory now.
    resident: Vec<ResidentView>,
}

/// A graph in a device's memory.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Resident")]
pub struct ResidentView {
    device: String,
    /// Whether it only waits in host memory to be put on the device.
    waits: bool,
    /// How many hold it.
    leases: usize,
    /// Of the device's memory.
    bytes: u64,
}

/// A page of the models that a tenant's functions find, by name: its own, and public ones of others.
#[derive(Serialize, JsonSchema)]
pub struct ModelList {
    models: Vec<ModelView>,
    /// What to ask for as `after` to have the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn view(model: &Model, resident: &[ResidentGraph]) -> ModelView {
    let record = model.record.clone();
    let resident = resident.iter().filter(|graph| is_of(graph, model)).map(|graph| ResidentView {
        device: graph.device.to_string(),
        waits: graph.waits,
        leases: graph.leases,
        bytes: graph.bytes,
    });
    ModelView {
        model: record.name,
        format: record.format,
        digest: format!("sha256:{}", record.digest),
        bytes: record.bytes,
        inputs: record.inputs,
        outputs: record.outputs,
        created: record.created,
        visibility: record.config.visibility,
        config: record.config,
        resident: resident.collect(),
    }
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
    query: Result<Asked<UploadQuery>, Problem>,
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
    query: Result<Asked<UploadQuery>, Problem>,
) -> Result<(Name, Format), Problem> {
    let ModelName(name) = name?;
    let Asked(UploadQuery { format }) = query.map_err(|problem| {
        Problem::new(problem.code, format!("say the model's format: ?format=onnx ({})", problem.detail))
    })?;
    Ok((name, format.parse()?))
}

/// The query of `GET /v1/models`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelQuery {
    #[serde(default)]
    #[schemars(with = "Option<PageLimit>")]
    limit: PageLimit,
    /// `next` of the page before.
    after: Option<String>,
    /// Only those whose names begin so.
    #[serde(default)]
    prefix: String,
}

/// `GET /v1/models`
pub async fn list(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    Asked(query): Asked<ModelQuery>,
) -> Json<ModelList> {
    let resident = node.service.stats().resident;
    let mut models = node.models.of(&tenant);
    models.retain(|model| model.record.name.starts_with(&query.prefix));
    let (page, next) = query.limit.page(models, query.after, |model| model.record.name.clone());
    Json(ModelList { models: page.iter().map(|model| view(model, &resident)).collect(), next })
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
