//! Every refusal's shape: `application/problem+json` (RFC 9457) with a stable code.

use std::borrow::Cow;
use std::fmt;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

pub use super::code::Code;
use super::code::Row;
use crate::access::Wrong;
use crate::function::StartError;
use crate::limits::Exceeded;
use crate::policy::Violation;
use crate::preparation::Unprepared;
use crate::store::StoreError;

/// A refusal: a code, and a sentence for whoever asked.
#[derive(Debug)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    /// The rules of the operator's policy that it is about. Only of [`Code::PolicyViolation`].
    pub violations: Vec<Violation>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), violations: vec![] }
    }

    /// What the operator's policy has against a deploy: all of it.
    pub fn policy(violations: Vec<Violation>) -> Self {
        let all: Vec<String> = violations.iter().map(Violation::to_string).collect();
        let detail = format!("the operator's policy does not allow it: {}", all.join("; "));
        Self { violations, ..Self::new(Code::PolicyViolation, detail) }
    }

    /// What went wrong is for the operator's log; the client learns that it did.
    pub fn internal(error: &anyhow::Error) -> Self {
        tracing::error!(error = format!("{error:#}"), "internal error");
        Self::new(Code::Internal, "the server failed; its log says why")
    }

    pub fn no_function(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no function `{name}`"))
    }

    /// Of a call, which names a tenant too.
    pub fn nothing_to_call(tenant: &str, name: &str) -> Self {
        Self::new(Code::NotFound, format!("the tenant `{tenant}` has no function `{name}`"))
    }

    pub fn no_tenant(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no tenant `{name}`"))
    }

    pub fn no_model(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no model `{name}`"))
    }
}

/// The stable names, as a schema.
enum CodeText {}

impl JsonSchema for CodeText {
    fn schema_name() -> Cow<'static, str> {
        "ProblemCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>() })
    }
}

/// A refusal (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemView {
    /// `urn:weir:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    /// That of the answer.
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// What it is; stable.
    #[schemars(with = "CodeText")]
    code: &'static str,
    /// What is wrong with this request: a sentence.
    detail: String,
    /// Whether the same request may succeed later; `Retry-After` says when to try.
    retryable: bool,
    /// The rules of the operator's policy that a deploy does not keep; absent for all else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    violations: Vec<Violation>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Row { status, code, title, retry_after } = self.code.row();
        let body = ProblemView {
            kind: format!("urn:weir:problem:{code}"),
            title,
            status: status.as_u16(),
            code,
            detail: self.detail,
            retryable: retry_after.is_some(),
            violations: self.violations,
        };
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A key that is no good.
impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Self::new(Code::Unauthorized, wrong.to_string())
    }
}

/// A limit that ends what it is met by. The others cut, and nobody asks them for a problem.
impl From<Exceeded> for Problem {
    fn from(exceeded: Exceeded) -> Self {
        Self::new(exceeded.limit.code().unwrap_or(Code::FunctionFailed), exceeded.detail)
    }
}

/// What the disk has against it, so far as the client can do something about it: try again.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Full(_) => {
                tracing::error!(%error, "a change was refused");
                Self::new(Code::StorageFull, "the server's disk has no room for it; nothing has changed")
            }
            StoreError::Unavailable(_) => {
                tracing::error!(%error, "the disk refused");
                let detail = "the server's disk does not take changes now; nothing has changed";
                Self::new(Code::StorageUnavailable, detail)
            }
            StoreError::Other(_) => Self::internal(&error.into()),
        }
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        StoreError::from(error).into()
    }
}

/// What an upload may meet on the way: the disk, or a failure of the server.
impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<std::io::Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::internal(&error),
        }
    }
}

/// What an upload meets while it is prepared.
impl From<Unprepared> for Problem {
    fn from(unprepared: Unprepared) -> Self {
        match unprepared {
            Unprepared::Component(reason) => Self::new(Code::InvalidComponent, reason),
            Unprepared::Model(error) => error.into(),
            Unprepared::Exceeded(exceeded) => exceeded.into(),
            Unprepared::Died(_) => Self::new(Code::PreparationFailed, unprepared.to_string()),
            Unprepared::Host(error) => error.into(),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::TimedOut(_) => Code::StartTimeout,
            StartError::Failed(_) => Code::StartFailed,
        };
        Self::new(code, error.to_string())
    }
}

/// Errors of the door, as an upload of a model meets them.
impl From<weir_gpu::Error> for Problem {
    fn from(error: weir_gpu::Error) -> Self {
        use weir_gpu::Error as Gpu;
        let code = match &error {
            Gpu::UnsupportedFormat(_) => Code::UnsupportedFormat,
            Gpu::InvalidModel(_)
            | Gpu::UnsupportedDtype { .. }
            | Gpu::Unbounded { .. }
            | Gpu::Engine(_)
            | Gpu::EnginePanic(_) => Code::InvalidModel,
            Gpu::ModelMemory { .. } => Code::ModelMemory,
            Gpu::OperatorCost { .. } => Code::OperatorCost,
            Gpu::DeviceMemory { .. } => Code::DeviceMemory,
            Gpu::TenantMemory { .. } => Code::TenantMemory,
            Gpu::Died(_) => Code::PreparationFailed,
            Gpu::InvalidTensor(_)
            | Gpu::InvalidInput { .. }
            | Gpu::InvalidInputs(_)
            | Gpu::NoGpu
            | Gpu::NotOnGpu(_) => Code::InvalidRequest,
            Gpu::DeviceFailed { .. } => Code::Internal,
            Gpu::QueueFull { .. } => Code::ServerOverloaded,
            Gpu::TenantQueueFull { .. } => Code::TenantOverloaded,
            Gpu::QueueTimeout { .. } => Code::QueueTimeout,
            Gpu::DeadlineTooSoon { .. } | Gpu::DeadlineExceeded(_) | Gpu::Cancelled => Code::RequestTimeout,
        };
        Self::new(code, error.to_string())
    }
}
