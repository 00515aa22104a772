//! The HTTP surface.
//!
//! ```text
//! serve.rs       connections
//! call.rs        a call of a function, down to its sandbox and back
//! functions.rs   deploy, list, status, traffic, logs, delete
//! models.rs      upload, configure, list, signature, delete
//! tenants.rs     what tenants may have
//! devices.rs     what the devices do, and for whom
//! upload.rs      bodies: those that go to disk, and JSON
//! problem.rs     every refusal's shape
//! ```

mod call;
mod devices;
mod functions;
mod models;
pub mod problem;
pub mod serve;
mod tenants;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use http::header;
use http::request::Parts;

use crate::name::Name;
use crate::node::Node;
use problem::{Code, Problem};
use upload::CONFIG_BYTES;

/// The tenant of a server that asks nobody for a key.
pub const DEV_TENANT: &str = "default";

/// The longest body of JSON that is not part of a deploy: a traffic split, a model's or a tenant's configuration.
const JSON_BYTES: usize = 64 << 10;

/// All routes. Bodies have no general limit here: each route that reads one sets its own.
pub fn router(node: Arc<Node>) -> Router {
    // The parts have limits of their own; this one is for what is between them.
    let deploy_bytes =
        node.settings.limits.component_bytes.as_usize().saturating_add(2 * CONFIG_BYTES.as_usize());
    let deploys = DefaultBodyLimit::max(deploy_bytes);
    let small = DefaultBodyLimit::max(JSON_BYTES);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .route("/v1/functions", get(functions::list))
        .route("/v1/functions/{name}", get(functions::show).delete(functions::delete))
        .route("/v1/functions/{name}/revisions", post(functions::deploy).layer(deploys))
        .route("/v1/functions/{name}/traffic", put(functions::traffic).layer(small))
        .route("/v1/functions/{name}/logs", get(functions::logs))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{name}", get(models::show).put(models::upload).delete(models::delete))
        .route("/v1/models/{name}/config", put(models::configure).layer(small))
        .route("/v1/tenants", get(tenants::list))
        .route("/v1/tenants/{name}", get(tenants::show).put(tenants::set).layer(small))
        .route("/v1/devices", get(devices::show))
        .route("/fn/{*call}", any(call::call))
        .fallback(|| async { Problem::new(Code::NotFound, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this route does not have that method; see the Allow header")
        })
        .layer(DefaultBodyLimit::disable())
        .with_state(node)
}

async fn metrics(State(node): State<Arc<Node>>) -> Result<Response, Problem> {
    let text = node
        .telemetry
        .text(&node.service.stats(), &node.memory)
        .map_err(|error| Problem::internal(&error.into()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The tenant that a request acts for. There are no keys yet, so it is always the same one.
fn tenant() -> Result<Name, Problem> {
    Name::function(DEV_TENANT).map_err(|reason| Problem::new(Code::InvalidName, reason))
}

/// The name of a function, from a route's path.
pub struct FunctionName(Name);

/// The name of a model, from a route's path.
pub struct ModelName(Name);

/// The name of a tenant, from a route's path.
pub struct TenantName(Name);

async fn name_in_path<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    check: fn(&str) -> Result<Name, String>,
) -> Result<Name, Problem> {
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

impl<S: Send + Sync> FromRequestParts<S> for ModelName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        name_in_path(parts, state, Name::model).await.map(Self)
    }
}
