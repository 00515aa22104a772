//! Functions: deploy, list, status, traffic, logs, delete.

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
use super::problem::{Code, Problem};
use super::{FunctionName, upload, whole};
use crate::function::{Function, RevisionRecord, Weight};
use crate::name::Name;
use crate::node::{Deployed, Node};
use crate::signature::Signature;

fn find(node: &Node, tenant: &Name, name: &Name) -> Result<Arc<Function>, Problem> {
    node.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))
}

fn url(tenant: &str, function: &str) -> String {
    format!("/fn/{tenant}/{function}/")
}

/// `POST /v1/functions/{name}/revisions`
pub async fn deploy(
    State(node): State<Arc<Node>>,
    tenant: Result<Tenant, Problem>,
    name: Result<FunctionName, Problem>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let signature = signature(&head.headers);
    let meant = tenant.and_then(|tenant| Ok((tenant, name?, signature?)));
    let (Tenant(tenant), FunctionName(name), signature) = match meant {
        Ok(meant) => meant,
        Err(problem) => return Err(upload::refused(problem, body).await),
    };
    let url = url(&tenant, &name);
    let (place, body) = upload::place(&node, body).await?;
    let (config, component) = upload::component(&node, Request::from_parts(head, body)).await?;
    let function = name.clone();
    let deployed = whole(async move {
        let deployed = node.deploy(&tenant, &function, config, component, signature).await;
        drop(place);
        deployed
    })
    .await?;
    let (status, record) = match deployed {
        Deployed::New(record) => (StatusCode::CREATED, record),
        Deployed::Same(record) => (StatusCode::OK, record),
    };
    let body = json!({
        "function": &*name,
        "revision": record.revision,
        "digest": format!("sha256:{}", record.digest),
        "bytes": record.bytes,
        "imports": record.imports,
        "signed_by": record.signed_by,
        "config": record.config,
        "url": url,
    });
    Ok((status, Json(body)).into_response())
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
) -> Result<Json<Value>, Problem> {
    let function = find(&node, &tenant, &name)?;
    let mut status = summary(&function);
    let record = node.record(&function).await?;
    let revisions: Vec<Value> = record.revisions.iter().map(|record| revision(&function, record)).collect();
    if let Some(fields) = status.as_object_mut() {
        fields.insert("revisions".to_owned(), revisions.into());
        fields.insert("traffic".to_owned(), json!(record.traffic));
    }
    Ok(Json(status))
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
    })
}

/// `DELETE /v1/functions/{name}`
pub async fn delete(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
) -> Result<StatusCode, Problem> {
    whole(async move { node.delete_function(&tenant, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The body of `PUT /v1/functions/{name}/traffic`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    traffic: Vec<Weight>,
}

/// `PUT /v1/functions/{name}/traffic`
pub async fn traffic(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let Traffic { traffic } = upload::json(&node, request).await?;
    let answer = json!({ "traffic": traffic });
    whole(async move { node.set_traffic(&tenant, &name, traffic).await }).await?;
    Ok(Json(answer))
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
    let new = new.take_until(node.stopping.clone().cancelled_owned());
    let past = futures::stream::iter(recent)
        .filter_map(|line| std::future::ready(Event::default().json_data(line).ok()));
    let events = past.chain(new).map(Ok::<_, Infallible>);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
