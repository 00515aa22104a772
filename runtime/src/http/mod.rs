//! The HTTP surface.
//!
//! ```text
//! serve.rs       connections
//! tls.rs         the server's certificate
//! guard.rs       what each route asks for, and the look at a request's key
//! local.rs       requests of web pages, where no key is asked for
//! call.rs        a call of a function, down to its sandbox and back
//! allowance.rs   what its tenant's budget and the rates say to a call
//! functions.rs   deploy, list, status, logs, delete
//! follow.rs      lines of a log as they come
//! traffic.rs     which revisions get a function's calls
//! models.rs      upload, configure, list, signature, delete
//! tenants.rs     what tenants may have
//! rates.rs       what usage costs
//! billing.rs     what of it is owed: how tenants are billed, credits, invoices
//! keys.rs        who may come in
//! audit.rs       who changed what
//! usage.rs       what was used
//! backup.rs      a copy of what is kept
//! devices.rs     what the devices do, and for whom
//! precondition.rs changes of what is as the client knows it
//! upload.rs      bodies: those that go to disk, and JSON
//! openapi.rs     the description of all routes, made of their types
//! operations.rs  what each route reads and gives
//! idempotency.rs requests that are done once
//! query.rs       queries, and the pages of lists
//! problem.rs     every refusal's shape
//! code.rs        every refusal's code, and what that means
//! ```

mod allowance;
mod audit;
mod backup;
mod billing;
mod call;
mod code;
mod devices;
mod follow;
mod functions;
mod guard;
pub mod idempotency;
mod keys;
mod local;
mod models;
mod openapi;
mod operations;
pub mod precondition;
pub mod problem;
mod query;
mod rates;
pub mod serve;
mod tenants;
pub mod tls;
mod traffic;
mod upload;
mod usage;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use http::request::Parts;
use http::{HeaderMap, header};

use crate::access::Right;
use crate::config::Settings;
use crate::meter::money::Month;
use crate::name::Name;
use crate::node::Node;
use crate::telemetry::Form;
use guard::{Needs, Routes};
use problem::{Code, Problem};
use upload::CONFIG_BYTES;

/// The tenant of a server that asks nobody for a key.
pub const DEV_TENANT: &str = "default";

/// The longest body of JSON that is not part of a deploy: a traffic split, a model's or a tenant's configuration.
const JSON_BYTES: usize = 64 << 10;

/// All routes. Bodies have no general limit here: each route that reads one sets its own.
pub fn routes(settings: &Settings) -> Routes {
    // The parts have limits of their own; this one is for what is between them.
    let deploy_bytes = settings.limits.component_bytes.as_usize().saturating_add(2 * CONFIG_BYTES.as_usize());
    let deploys = DefaultBodyLimit::max(deploy_bytes);
    let small = DefaultBodyLimit::max(JSON_BYTES);
    let needs = Needs::Right;
    Routes::default()
        .on("GET", "/healthz", Needs::Nothing, get(|| async { "ok\n" }))
        .on("GET", "/readyz", Needs::Nothing, get(ready))
        .on("GET", "/openapi.json", Needs::Nothing, get(description))
        .on("GET", "/metrics", needs(Right::Observe), get(metrics))
        .on("GET", "/v1/functions", needs(Right::Read), get(functions::list))
        .on("GET", "/v1/functions/{name}", needs(Right::Read), get(functions::show))
        .on("DELETE", "/v1/functions/{name}", needs(Right::Deploy), delete(functions::delete))
        .on(
            "POST",
            "/v1/functions/{name}/revisions",
            needs(Right::Deploy),
            post(functions::deploy).layer(deploys),
        )
        .on("PUT", "/v1/functions/{name}/traffic", needs(Right::Deploy), put(traffic::set).layer(small))
        .on(
            "POST",
            "/v1/functions/{name}/rollback",
            needs(Right::Deploy),
            post(traffic::rollback).layer(small),
        )
        .on("GET", "/v1/functions/{name}/logs", needs(Right::Read), get(functions::logs))
        .on("GET", "/v1/models", needs(Right::Read), get(models::list))
        .on("GET", "/v1/models/{name}", needs(Right::Read), get(models::show))
        .on("PUT", "/v1/models/{name}", needs(Right::Deploy), put(models::upload))
        .on("DELETE", "/v1/models/{name}", needs(Right::Deploy), delete(models::delete))
        .on("PUT", "/v1/models/{name}/config", needs(Right::Deploy), put(models::configure).layer(small))
        .on("GET", "/v1/tenants", needs(Right::Observe), get(tenants::list))
        .on("GET", "/v1/tenants/{name}", needs(Right::Read), get(tenants::show))
        .on("PUT", "/v1/tenants/{name}", needs(Right::Operate), put(tenants::set).layer(small))
        .on("GET", "/v1/tenants/{name}/billing", needs(Right::Manage), get(billing::show))
        .on("PUT", "/v1/tenants/{name}/billing", needs(Right::Operate), put(billing::set).layer(small))
        .on("GET", "/v1/tenants/{name}/credits", needs(Right::Manage), get(billing::credits))
        .on(
            "POST",
            "/v1/tenants/{name}/credits",
            needs(Right::Operate),
            post(billing::give_credit).layer(small),
        )
        .on("GET", "/v1/rate-cards", needs(Right::Observe), get(rates::list))
        .on("GET", "/v1/rate-cards/{name}", needs(Right::Observe), get(rates::show))
        .on("PUT", "/v1/rate-cards/{name}", needs(Right::Operate), put(rates::set).layer(small))
        .on("GET", "/v1/invoices/{month}", needs(Right::Manage), get(billing::invoice))
        .on("GET", "/v1/keys", needs(Right::Manage), get(keys::list))
        .on("POST", "/v1/keys", needs(Right::Manage), post(keys::make).layer(small))
        .on("DELETE", "/v1/keys/{id}", needs(Right::Manage), delete(keys::revoke))
        .on("POST", "/v1/keys/{id}/rotate", needs(Right::Manage), post(keys::rotate).layer(small))
        .on("GET", "/v1/audit", needs(Right::Manage), get(audit::list))
        .on("GET", "/v1/usage", needs(Right::Read), get(usage::sums))
        .on("GET", "/v1/usage/records", needs(Right::Read), get(usage::records))
        .on("GET", "/v1/devices", needs(Right::Observe), get(devices::show))
        .on("POST", "/v1/backup", needs(Right::Operate), post(backup::make))
        .on("ANY", "/fn/{*call}", Needs::Call, any(call::call))
}

/// What serves all routes, with their methods, `ANY` for all, and paths.
pub fn router(node: Arc<Node>) -> (Router, Vec<(&'static str, &'static str)>) {
    let routes = routes(&node.settings());
    let list = routes.list().into_iter().map(|(method, path, _)| (method, path)).collect();
    let router = routes
        .guarded(&node)
        .fallback(async |State(node): State<Arc<Node>>| {
            unrouted(&node, Code::NotFound, "there is no such route")
        })
        .method_not_allowed_fallback(async |State(node): State<Arc<Node>>| {
            let detail = "this route does not have that method; see the Allow header";
            unrouted(&node, Code::MethodNotAllowed, detail)
        })
        .layer(DefaultBodyLimit::disable())
        .with_state(node);
    (router, list)
}

/// The answer to a request that comes to no route, and so past no guard.
fn unrouted(node: &Node, code: Code, detail: &'static str) -> Problem {
    node.telemetry.problem(code);
    Problem::new(code, detail)
}

/// The description of all routes, as JSON text.
pub fn describe() -> String {
    openapi::document(&routes(&Settings::default()).list())
}

/// `GET /openapi.json`
async fn description() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(describe);
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// `GET /readyz`: whether the server takes changes, and goes on. Calls of what is deployed are served also when it says no.
async fn ready(State(node): State<Arc<Node>>) -> Result<&'static str, Problem> {
    if node.stop.asked.is_cancelled() {
        return Err(Problem::new(Code::Stopping, "the server stops; send requests elsewhere"));
    }
    match node.store.can_write().await {
        Ok(()) => Ok("ok\n"),
        Err(_) => {
            Err(Problem::new(Code::StorageUnavailable, "the store cannot write; the server's log says why"))
        }
    }
}

/// Makes a change to its end, whether or not whoever asked for it waits: what is kept and what is served would differ if
/// it stopped in the middle.
async fn whole<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(change).await.map_err(|error| Problem::internal(&error.into()))?
}

/// `GET /metrics`: OpenMetrics for those who ask for it, as Prometheus does, and Prometheus' older text for others.
async fn metrics(State(node): State<Arc<Node>>, headers: HeaderMap) -> Result<Response, Problem> {
    let form = Form::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let text = node.metrics().await.text(form).map_err(|error| Problem::internal(&error.into()))?;
    Ok(([(header::CONTENT_TYPE, form.content_type())], text).into_response())
}

/// The name of a function, from a route's path.
pub struct FunctionName(Name);

/// The name of a model, from a route's path.
pub struct ModelName(Name);

/// The name of a tenant, from a route's path.
pub struct TenantName(Name);

/// The name of a rate card, from a route's path.
pub struct CardName(Name);

/// The month of an invoice, from a route's path.
pub struct InvoiceMonth(Month);

/// The id of a key, from a route's path. Any text may be one that is not there.
pub struct KeyId(String);

async fn name_in_path<S: Send + Sync, T>(
    parts: &mut Parts,
    state: &S,
    check: fn(&str) -> Result<T, String>,
) -> Result<T, Problem> {
    let name = Path::<String>::from_request_parts(parts, state).await.map_err(|error| error.body_text());
    name.and_then(|Path(name)| check(&name)).map_err(|reason| Problem::new(Code::InvalidName, reason))
}

impl<S: Send + Sync> FromRequestParts<S> for FunctionName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, Name::function).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TenantName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, Name::tenant).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for CardName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, Name::card).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InvoiceMonth {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, str::parse).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, |id| Ok(id.to_owned())).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ModelName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, Name::model).await.map(Self)
    }
}
