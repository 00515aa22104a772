//! Functions: deploy, list, status, logs, delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guard::Tenant;
use super::precondition::{Precondition, tagged};
use super::problem::{Code, Problem};
use super::query::{Asked, PageLimit};
use super::{FunctionName, follow, upload, whole};
use crate::access::Principal;
use crate::audit::Actor;
use crate::function::{Function, FunctionConfig, RevisionRecord, Stage, Weight};
use crate::name::Name;
use crate::node::{Deploy, DeployOutcome, Node};
use crate::sandbox::logs::Line;
use crate::schema::{DigestText, FunctionText, KeyText, MomentText, TenantText};
use crate::signature::Signature;

fn find(node: &Node, tenant: &Name, name: &Name) -> Result<Arc<Function>, Problem> {
    node.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))
}

fn url(tenant: &str, function: &str) -> String {
    format!("/fn/{tenant}/{function}/")
}

/// The query of `POST /v1/functions/{name}/revisions`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployQuery {
    /// Percent of the traffic that the new revision gets.
    #[serde(default = "DeployQuery::all")]
    #[schemars(range(max = 100))]
    traffic: u8,
}

impl DeployQuery {
    fn all() -> u8 {
        100
    }

    fn percent(query: Result<Asked<Self>, Problem>) -> Result<u8, Problem> {
        let invalid =
            |why| Problem::new(Code::InvalidRequest, format!("traffic is a percentage, 0 to 100{why}"));
        let Asked(Self { traffic }) = query.map_err(|problem| invalid(format!(" ({})", problem.detail)))?;
        if traffic > 100 { Err(invalid(String::new())) } else { Ok(traffic) }
    }
}

/// `POST /v1/functions/{name}/revisions?traffic=100`
pub async fn deploy(
    State(node): State<Arc<Node>>,
    tenant: Result<Tenant, Problem>,
    name: Result<FunctionName, Problem>,
    by: Actor,
    query: Result<Asked<DeployQuery>, Problem>,
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
    let (url, of) = (url(&tenant, &name), tenant.to_string());
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
    let record = deployed.record.revisions.last().ok_or_else(|| Problem::no_function(&name))?.clone();
    let body = DeployView {
        function: name.to_string(),
        tenant: of,
        revision: record.revision,
        digest: format!("sha256:{}", record.digest),
        bytes: record.bytes,
        imports: record.imports,
        signed_by: record.signed_by,
        config: record.config,
        traffic: deployed.record.traffic,
        url,
    };
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

/// What became of a deploy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Deploy")]
pub struct DeployView {
    #[schemars(with = "FunctionText")]
    function: String,
    /// Whose it is: that of the key, or the one that was named.
    #[schemars(with = "TenantText")]
    tenant: String,
    /// Counted from 1.
    revision: u64,
    #[schemars(with = "DigestText")]
    digest: String,
    /// Of the component.
    bytes: u64,
    /// The interfaces that the component imports.
    imports: Vec<String>,
    /// The name of the tenant's key that the component is signed with; null where it is not.
    signed_by: Option<String>,
    config: FunctionConfig,
    /// How calls are shared out now.
    traffic: Vec<Weight>,
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
    /// Each revision's weight; its share is that over the sum of all.
    traffic: Vec<Weight>,
    /// The header by whose value callers stay with one revision; null if there is none.
    sticky_header: Option<String>,
    /// The revision that a rollback goes to that names none; null if there is none.
    rollback_to: Option<u64>,
    /// The host names that it is called by, beside its path.
    hosts: Vec<String>,
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
    /// The name of the tenant's key that the component is signed with; null where it is not.
    signed_by: Option<String>,
    config: FunctionConfig,
    #[schemars(with = "MomentText")]
    created: String,
    /// The id of the key that deployed it; null on a server that asks for no keys, and of older deploys.
    #[schemars(with = "Option<KeyText>")]
    created_by: Option<String>,
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
) -> Result<Response, Problem> {
    let function = find(&node, &tenant, &name)?;
    let kept = node.record(&function).await?;
    let record = kept.record.clone();
    let view = FunctionView {
        summary: summary(&function),
        rollback_to: record.rollback_target(),
        revisions: record.revisions.into_iter().map(|record| revision(&function, record)).collect(),
        traffic: record.traffic,
        sticky_header: record.sticky_header,
        hosts: node.hosts.of(&tenant, &name, &node.settings().http),
    };
    Ok(tagged(Some(&kept), Json(view)))
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
        signed_by: record.signed_by,
        config: record.config,
        created: record.created,
        created_by: record.created_by,
    }
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
    principal: Principal,
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
    Ok(follow::events(node, principal, recent, new))
}
