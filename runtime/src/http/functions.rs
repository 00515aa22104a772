//! Functions: deploy, list, status, logs, delete.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::guard::Tenant;
use super::precondition::{Precondition, tagged};
use super::problem::{Code, Problem};
use super::{FunctionName, upload, whole};
use crate::audit::Actor;
use crate::function::{Function, RevisionRecord};
use crate::name::Name;
use crate::node::{Deploy, DeployOutcome, Node};
use crate::signature::Signature;

fn find(node: &Node, tenant: &Name, name: &Name) -> Result<Arc<Function>, Problem> {
    node.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))
}

fn url(tenant: &str, function: &str) -> String {
    format!("/fn/{tenant}/{function}/")
}

/// The query of `POST /v1/functions/{name}/revisions`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeployQuery {
    /// Percent of the traffic that the new revision gets, 0 to 100.
    traffic: u8,
}

impl Default for DeployQuery {
    fn default() -> Self {
        Self { traffic: 100 }
    }
}

impl DeployQuery {
    fn percent(query: Result<Query<Self>, QueryRejection>) -> Result<u8, Problem> {
        let invalid =
            |why| Problem::new(Code::InvalidRequest, format!("traffic is a percentage, 0 to 100{why}"));
        let Query(Self { traffic }) = query.map_err(|error| invalid(format!(" ({})", error.body_text())))?;
        if traffic > 100 { Err(invalid(String::new())) } else { Ok(traffic) }
    }
}

/// `POST /v1/functions/{name}/revisions?traffic=100`
pub async fn deploy(
    State(node): State<Arc<Node>>,
    tenant: Result<Tenant, Problem>,
    name: Result<FunctionName, Problem>,
    by: Actor,
    query: Result<Query<DeployQuery>, QueryRejection>,
    condition: Result<Precondition, Problem>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let signature = signature(&head.headers);
    let meant =
        tenant.and_then(|tenant| Ok((tenant, name?, DeployQuery::percent(query)?, condition?, signature?)));
    let (Tenant(tenant), FunctionName(name), traffic, condition, signature) = match meant {
        Ok(meant) => meant,
        Err(problem) => return Err(upload::refused(problem, body).await),
    };
    let url = url(&tenant, &name);
    let (place, body) = upload::place(&node, body).await?;
    let (config, component) = upload::component(&node, Request::from_parts(head, body)).await?;
    let deploy = Deploy { config, component, traffic, signature, signed_by: None, by, condition };
    let function = name.clone();
    let deployed = whole(async move {
        let deployed = node.deploy(&tenant, &function, deploy).await;
        drop(place);
        deployed
    })
    .await?;
    let status = match deployed.outcome {
        DeployOutcome::New => StatusCode::CREATED,
        DeployOutcome::Same => StatusCode::OK,
    };
    let record = deployed.record.revisions.last().ok_or_else(|| Problem::no_function(&name))?;
    let body = json!({
        "function": &*name,
        "revision": record.revision,
        "digest": format!("sha256:{}", record.digest),
        "bytes": record.bytes,
        "imports": record.imports,
        "signed_by": record.signed_by,
        "config": record.config,
        "traffic": deployed.record.traffic,
        "url": url,
    });
    Ok(deployed.tag.on((status, Json(body))))
}

/// A deploy's signature, from the header `weir-signature`.
fn signature(headers: &HeaderMap) -> Result<Option<Signature>, Problem> {
    let Some(value) = headers.get("weir-signature") else { return Ok(None) };
    let parsed = Signature::parse(value.to_str().unwrap_or_default());
    parsed
        .map(Some)
        .map_err(|reason| Problem::new(Code::InvalidSignature, format!("weir-signature: {reason}")))
}

/// The state of a function as a whole: awake if any revision is.
fn state(function: &Function) -> (&'static str, Option<String>) {
    let states: Vec<_> = function.revisions().iter().map(|revision| revision.status()).collect();
    for wanted in ["ready", "starting", "failed"] {
        if let Some((state, reason)) = states.iter().rev().find(|(state, _)| *state == wanted) {
            return (state, reason.clone());
        }
    }
    ("zero", None)
}

fn summary(function: &Function) -> Value {
    let (state, reason) = state(function);
    let cold_starts: u64 = function.revisions().iter().map(|revision| revision.cold_starts()).sum();
    let (calls, failures) = function.counts();
    let mut summary = json!({
        "function": &*function.name,
        "state": state,
        "calls": calls,
        "failures": failures,
        "cold_starts": cold_starts,
        "url": url(&function.tenant, &function.name),
    });
    if let (Some(reason), Some(fields)) = (reason, summary.as_object_mut()) {
        fields.insert("reason".to_owned(), reason.into());
    }
    summary
}

/// `GET /v1/functions`
pub async fn list(State(node): State<Arc<Node>>, Tenant(tenant): Tenant) -> Json<Value> {
    let functions = node.functions.of(&tenant);
    let functions: Vec<Value> = functions.iter().map(|function| summary(function)).collect();
    Json(json!({ "functions": functions }))
}

/// `GET /v1/functions/{name}`
pub async fn show(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
) -> Result<Response, Problem> {
    let function = find(&node, &tenant, &name)?;
    let mut status = summary(&function);
    let kept = node.record(&function).await?;
    let record = &kept.record;
    let revisions: Vec<Value> = record.revisions.iter().map(|record| revision(&function, record)).collect();
    if let Some(fields) = status.as_object_mut() {
        fields.insert("revisions".to_owned(), revisions.into());
        fields.insert("traffic".to_owned(), json!(record.traffic));
        fields.insert("sticky_header".to_owned(), json!(record.sticky_header));
        fields.insert("rollback_to".to_owned(), json!(record.rollback_target()));
        let hosts = node.hosts.of(&tenant, &name, &node.settings().http);
        fields.insert("hosts".to_owned(), json!(hosts));
    }
    Ok(tagged(Some(&kept), Json(status)))
}

fn revision(function: &Function, record: &RevisionRecord) -> Value {
    let running = function.revisions().into_iter().find(|revision| revision.number == record.revision);
    let (state, reason) = running.as_ref().map_or(("zero", None), |revision| revision.status());
    let last = running.as_ref().and_then(|revision| revision.last_cold_start()).map(|cold| {
        let [code, graph, sandbox] = cold.phases();
        json!({ "code_ms": code, "graph_ms": graph, "sandbox_ms": sandbox })
    });
    json!({
        "revision": record.revision,
        "state": state,
        "reason": reason,
        "cold_starts": running.map_or(0, |revision| revision.cold_starts()),
        "last_cold_start": last,
        "digest": format!("sha256:{}", record.digest),
        "bytes": record.bytes,
        "imports": record.imports,
        "signed_by": record.signed_by,
        "config": record.config,
        "created": record.created,
        "created_by": record.created_by,
    })
}

/// `DELETE /v1/functions/{name}`
pub async fn delete(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    by: Actor,
    condition: Precondition,
) -> Result<StatusCode, Problem> {
    whole(async move { node.delete_function(&tenant, &name, &by, &condition).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query of `GET /v1/functions/{name}/logs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogQuery {
    /// Whether to stay and send lines as they come.
    follow: bool,
    /// The most lines of the past.
    tail: usize,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { follow: false, tail: 100 }
    }
}

/// `GET /v1/functions/{name}/logs`: recent lines as JSON, or all from now on as server-sent events.
pub async fn logs(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let function = find(&node, &tenant, &name)?;
    let Query(LogQuery { follow, tail }) =
        query.map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))?;
    let log = Arc::clone(&function.log);
    let read = move || match follow {
        true => log.follow(tail).map(|(recent, new)| (recent, Some(new))),
        false => log.recent(tail).map(|recent| (recent, None)),
    };
    let (recent, new) =
        tokio::task::spawn_blocking(read).await.map_err(|error| Problem::internal(&error.into()))??;
    let Some(new) = new else { return Ok(Json(json!({ "lines": recent })).into_response()) };
    let new = BroadcastStream::new(new).filter_map(|line| {
        let event = match line {
            Ok(line) => Event::default().json_data(line).ok(),
            Err(BroadcastStreamRecvError::Lagged(missed)) => {
                Event::default().event("missed").json_data(json!({ "lines": missed })).ok()
            }
        };
        std::future::ready(event)
    });
    // A server that stops does not wait for its followers.
    let new = new.take_until(node.stop.ended.clone().cancelled_owned());
    let past = futures::stream::iter(recent)
        .filter_map(|line| std::future::ready(Event::default().json_data(line).ok()));
    let events = past.chain(new).map(Ok::<_, Infallible>);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
