//! The HTTP surface.
//!
//! ```text
//! call.rs        a call of a function, down to its sandbox and back
//! functions.rs   deploy, list, status, traffic, logs, delete
//! models.rs      upload, list, signature, delete
//! upload.rs      bodies that go to disk
//! problem.rs     every refusal's shape
//! ```

mod call;
mod functions;
mod models;
pub mod problem;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use http::header;

use crate::name::Name;
use crate::node::Node;
use problem::{Code, Problem};

/// The tenant of a server that asks nobody for a key.
pub const DEV_TENANT: &str = "default";

/// All routes. Bodies have no general limit here: each route that reads one sets its own.
pub fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .route("/v1/functions", get(functions::list))
        .route("/v1/functions/{name}", get(functions::show).delete(functions::delete))
        .route("/v1/functions/{name}/revisions", post(functions::deploy))
        .route("/v1/functions/{name}/traffic", put(functions::traffic))
        .route("/v1/functions/{name}/logs", get(functions::logs))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{name}", get(models::show).put(models::upload).delete(models::delete))
        .route("/fn/{tenant}/{function}", any(call::call))
        .route("/fn/{tenant}/{function}/", any(call::call))
        .route("/fn/{tenant}/{function}/{*path}", any(call::call))
        .fallback(|| async { Problem::new(Code::NotFound, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "this route does not have that method; see the Allow header")
        })
        .layer(DefaultBodyLimit::disable())
        .with_state(node)
}

async fn metrics(State(node): State<Arc<Node>>) -> Result<Response, Problem> {
    let text =
        node.telemetry.text(&node.service.stats()).map_err(|error| Problem::internal(&error.into()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The tenant that a request acts for. There are no keys yet, so it is always the same one.
fn tenant() -> Result<Name, Problem> {
    Name::function(DEV_TENANT).map_err(|reason| Problem::new(Code::InvalidName, reason))
}

fn function_name(name: &str) -> Result<Name, Problem> {
    Name::function(name).map_err(|reason| Problem::new(Code::InvalidName, reason))
}

fn model_name(name: &str) -> Result<Name, Problem> {
    Name::model(name).map_err(|reason| Problem::new(Code::InvalidName, reason))
}
