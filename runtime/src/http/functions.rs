//! Functions: deploy, list, status, traffic, logs, delete.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::guard::Tenant;
use super::problem::Problem;
use super::query::{Asked, PageLimit};
use super::{FunctionName, upload, whole};
use crate::function::{Function, FunctionConfig, RevisionRecord, Stage, Weight};
use crate::name::Name;
use crate::node::{Deployed, Node};
use crate::sandbox::logs::Line;
use crate::schema::{DigestText, FunctionText, MomentText};

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
    let (Tenant(tenant), FunctionName(name)) = match tenant.and_then(|tenant| Ok((tenant, name?))) {
        Ok(meant) => meant,
        Err(problem) => return Err(upload::refused(problem, body).await),
    };
    let url = url(&tenant, &name);
    let (place, body) = upload::place(&node, body).await?;
    let (config, component) = upload::component(&node, Request::from_parts(head, body)).await?;
    let function = name.clone();
    let deployed = whole(async move {
        let deployed = node.deploy(&tenant, &function, config, component).await;
        drop(place);
        deployed
    })
    .await?;
    let (status, record) = match deployed {
        Deployed::New(record) => (StatusCode::CREATED, record),
        Deployed::Same(record) => (StatusCode::OK, record),
    };
    let body = DeployView {
        function: name.to_string(),
        revision: record.revision,
        digest: format!("sha256:{}", record.digest),
        bytes: record.bytes,
        imports: record.imports,
        config: record.config,
        url,
    };
    Ok((status, Json(body)).into_response())
}

/// What became of a deploy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Deploy")]
pub struct DeployView {
    #[schemars(with = "FunctionText")]
    function: String,
    /// Counted from 1.
    revision: u64,
    #[schemars(with = "DigestText")]
    digest: String,
    /// Of the component.
    bytes: u64,
    /// The interfaces that the component imports.
    imports: Vec<String>,
    config: FunctionConfig,
    /// The path of its calls, on this server.
    url: String,
}

/// A function, as lists show it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FunctionSummary")]
pub struct Summary {
    #[schemars(with = "FunctionText")]
    function: String,
    /// That of its revision that is the most awake.
    state: Stage,
    /// Why it failed; absent where it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Since the server's start.
    calls: u64,
    /// Calls since the server's start that got no whole answer of the function's.
    failures: u64,
    /// How often it came from nothing to awake since the server's start.
    cold_starts: u64,
    /// The path of its calls, on this server.
    url: String,
}

/// A page of a tenant's functions, by name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FunctionList")]
pub struct FunctionList {
    functions: Vec<Summary>,
    /// What to ask for as `after` to have the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A function with all that is known about it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Function")]
pub struct FunctionView {
    #[serde(flatten)]
    summary: Summary,
    /// Oldest first.
    revisions: Vec<RevisionView>,
    traffic: Vec<Weight>,
}

/// A revision of a function.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Revision")]
pub struct RevisionView {
    /// Counted from 1.
    revision: u64,
    state: Stage,
    /// Why it failed; null where it has not.
    reason: Option<String>,
    /// How often it came from nothing to awake since the server's start.
    cold_starts: u64,
    /// Null before the first since the server's start.
    last_cold_start: Option<ColdStartView>,
    #[schemars(with = "DigestText")]
    digest: String,
    /// Of the component.
    bytes: u64,
    /// The interfaces that the component imports.
    imports: Vec<String>,
    config: FunctionConfig,
    #[schemars(with = "MomentText")]
    created: String,
}

/// What a start took, in milliseconds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ColdStart")]
pub struct ColdStartView {
    /// Until its code was mapped.
    code_ms: f64,
    /// Until the graphs that it opened first were loaded.
    graph_ms: f64,
    /// Until its first sandbox was there.
    sandbox_ms: f64,
}

/// The state of a function as a whole: awake if any revision is.
fn state(function: &Function) -> (Stage, Option<String>) {
    let states: Vec<_> = function.revisions().iter().map(|revision| revision.status()).collect();
    for wanted in [Stage::Ready, Stage::Starting, Stage::Failed] {
        if let Some((state, reason)) = states.iter().rev().find(|(state, _)| *state == wanted) {
            return (*state, reason.clone());
        }
    }
    (Stage::Zero, None)
}

fn summary(function: &Function) -> Summary {
    let (state, reason) = state(function);
    let cold_starts = function.revisions().iter().map(|revision| revision.cold_starts()).sum();
    let (calls, failures) = function.counts();
    let url = url(&function.tenant, &function.name);
    Summary { function: function.name.to_string(), state, reason, calls, failures, cold_starts, url }
}

/// The query of `GET /v1/functions`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionQuery {
    #[serde(default)]
    #[schemars(with = "Option<PageLimit>")]
    limit: PageLimit,
    /// `next` of the page before.
    after: Option<String>,
    /// Only those whose names begin so.
    #[serde(default)]
    prefix: String,
    /// Only those that are in this state.
    state: Option<Stage>,
}

/// `GET /v1/functions`
pub async fn list(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    Asked(query): Asked<FunctionQuery>,
) -> Json<FunctionList> {
    let mut functions = node.functions.of(&tenant);
    functions.retain(|function| {
        function.name.starts_with(&query.prefix)
            && query.state.is_none_or(|wanted| state(function).0 == wanted)
    });
    let (page, next) = query.limit.page(functions, query.after, |function| function.name.to_string());
    Json(FunctionList { functions: page.iter().map(|function| summary(function)).collect(), next })
}

/// `GET /v1/functions/{name}`
pub async fn show(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
) -> Result<Json<FunctionView>, Problem> {
    let function = find(&node, &tenant, &name)?;
    let record = node.record(&function).await?;
    let revisions = record.revisions.into_iter().map(|record| revision(&function, record)).collect();
    Ok(Json(FunctionView { summary: summary(&function), revisions, traffic: record.traffic }))
}

fn revision(function: &Function, record: RevisionRecord) -> RevisionView {
    let running = function.revisions().into_iter().find(|revision| revision.number == record.revision);
    let (state, reason) = running.as_ref().map_or((Stage::Zero, None), |revision| revision.status());
    let last_cold_start = running.as_ref().and_then(|revision| revision.last_cold_start()).map(|cold| {
        let [code_ms, graph_ms, sandbox_ms] = cold.phases();
        ColdStartView { code_ms, graph_ms, sandbox_ms }
    });
    RevisionView {
        revision: record.revision,
        state,
        reason,
        cold_starts: running.map_or(0, |revision| revision.cold_starts()),
        last_cold_start,
        digest: format!("sha256:{}", record.digest),
        bytes: record.bytes,
        imports: record.imports,
        config: record.config,
        created: record.created,
    }
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

/// How calls are split over revisions: at least one has a weight above 0.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    #[schemars(length(min = 1))]
    traffic: Vec<Weight>,
}

/// `PUT /v1/functions/{name}/traffic`
pub async fn traffic(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    request: Request,
) -> Result<Json<Traffic>, Problem> {
    let Traffic { traffic } = upload::json(&node, request).await?;
    let answer = Traffic { traffic: traffic.clone() };
    whole(async move { node.set_traffic(&tenant, &name, traffic).await }).await?;
    Ok(Json(answer))
}

/// The query of `GET /v1/functions/{name}/logs`.
#[derive(Deserialize, JsonSchema)]
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

/// Lines of a function's log, oldest first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Log")]
pub struct LogView {
    lines: Vec<Line>,
}

/// `GET /v1/functions/{name}/logs`: recent lines as JSON, or all from now on as server-sent events.
pub async fn logs(
    State(node): State<Arc<Node>>,
    Tenant(tenant): Tenant,
    FunctionName(name): FunctionName,
    Asked(LogQuery { follow, tail }): Asked<LogQuery>,
) -> Result<Response, Problem> {
    let function = find(&node, &tenant, &name)?;
    let log = Arc::clone(&function.log);
    let read = move || match follow {
        true => log.follow(tail).map(|(recent, new)| (recent, Some(new))),
        false => log.recent(tail).map(|recent| (recent, None)),
    };
    let (recent, new) =
        tokio::task::spawn_blocking(read).await.map_err(|error| Problem::internal(&error.into()))??;
    let Some(new) = new else { return Ok(Json(LogView { lines: recent }).into_response()) };
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
