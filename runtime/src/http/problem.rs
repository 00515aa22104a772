//! Every refusal's shape: `application/problem+json` (RFC 9457) with a stable code. One table says what each code
//! means to a client; there is no other place that picks a status.

use std::fmt;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::function::StartError;
use crate::limits::Exceeded;
use crate::preparation::Unprepared;
use crate::store::StoreError;

/// The stable codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Unauthorized,
    Forbidden,
    TenantRequired,
    TenantSuspended,
    TooManyFailures,
    RateLimited,
    BudgetExhausted,
    QuotaExceeded,
    Conflict,
    NotFound,
    MethodNotAllowed,
    InvalidName,
    InvalidRequest,
    UnsupportedMediaType,
    TooLarge,
    UploadTimeout,
    InvalidConfig,
    InvalidComponent,
    InvalidModel,
    UnsupportedFormat,
    ModelInUse,
    FunctionOverloaded,
    ServerOverloaded,
    StartFailed,
    StartTimeout,
    FunctionFailed,
    ResponseTooLarge,
    RequestTimeout,
    MemoryLimit,
    TableLimit,
    InstanceLimit,
    CpuLimit,
    StackLimit,
    HostMemoryLimit,
    ResourceLimit,
    HeaderLimit,
    HeadersTooLarge,
    OutboundLimit,
    NodeMemory,
    DeviceMemory,
    TenantMemory,
    TenantOverloaded,
    QueueTimeout,
    InferenceTimeout,
    PreparationTimeout,
    PreparationMemory,
    PreparationFailed,
    ModelMemory,
    OperatorCost,
    StorageFull,
    StorageUnavailable,
    Internal,
}

/// What a code means to a client.
struct Row {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    /// Whether the same request may succeed later, and after how many seconds to try.
    retry_after: Option<u32>,
}

impl Code {
    fn row(self) -> Row {
        let row = |status, code, title| Row { status, code, title, retry_after: None };
        let later = |status, code, title, seconds| Row { status, code, title, retry_after: Some(seconds) };
        match self {
            Self::Unauthorized => {
                row(StatusCode::UNAUTHORIZED, "unauthorized", "There is no key, or one that is no good")
            }
            Self::Forbidden => row(StatusCode::FORBIDDEN, "forbidden", "The key is not for this"),
            Self::TenantRequired => {
                row(StatusCode::BAD_REQUEST, "tenant_required", "Whose things are meant is not said")
            }
            Self::TenantSuspended => {
                row(StatusCode::FORBIDDEN, "tenant_suspended", "The tenant is suspended")
            }
            Self::TooManyFailures => later(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_failures",
                "Too many wrong keys came from this address",
                3,
            ),
            Self::RateLimited => {
                later(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Calls come more often than they may", 1)
            }
            Self::BudgetExhausted => row(
                StatusCode::PAYMENT_REQUIRED,
                "budget_exhausted",
                "The tenant has spent all that it may in this month",
            ),
            Self::QuotaExceeded => {
                row(StatusCode::FORBIDDEN, "quota_exceeded", "The tenant has all that it may")
            }
            Self::Conflict => {
                row(StatusCode::CONFLICT, "conflict", "It cannot be so while something else is")
            }
            Self::NotFound => row(StatusCode::NOT_FOUND, "not_found", "There is no such thing"),
            Self::MethodNotAllowed => row(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "This resource does not have that method",
            ),
            Self::InvalidName => row(StatusCode::BAD_REQUEST, "invalid_name", "The name cannot be used"),
            Self::InvalidRequest => {
                row(StatusCode::BAD_REQUEST, "invalid_request", "The request is not understood")
            }
            Self::UnsupportedMediaType => row(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body is of a type that is not read here",
            ),
            Self::TooLarge => {
                row(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The body is larger than allowed")
            }
            Self::UploadTimeout => {
                row(StatusCode::REQUEST_TIMEOUT, "upload_timeout", "The body took longer than allowed")
            }
            Self::InvalidConfig => {
                row(StatusCode::UNPROCESSABLE_ENTITY, "invalid_config", "The configuration cannot be used")
            }
            Self::InvalidComponent => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_component",
                "The component cannot be a function",
            ),
            Self::InvalidModel => {
                row(StatusCode::UNPROCESSABLE_ENTITY, "invalid_model", "The model cannot be prepared")
            }
            Self::UnsupportedFormat => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unsupported_format",
                "The model's format is not read here",
            ),
            Self::ModelInUse => row(StatusCode::CONFLICT, "model_in_use", "A function may use the model"),
            Self::FunctionOverloaded => later(
                StatusCode::TOO_MANY_REQUESTS,
                "function_overloaded",
                "The function has all the calls it may",
                1,
            ),
            Self::ServerOverloaded => later(
                StatusCode::SERVICE_UNAVAILABLE,
                "server_overloaded",
                "The machine has all the sandboxes it may",
                1,
            ),
            Self::StartFailed => {
                later(StatusCode::SERVICE_UNAVAILABLE, "start_failed", "The function did not start", 5)
            }
            Self::StartTimeout => later(
                StatusCode::SERVICE_UNAVAILABLE,
                "start_timeout",
                "The function did not start in time",
                1,
            ),
            Self::FunctionFailed => {
                row(StatusCode::BAD_GATEWAY, "function_failed", "The function ended without an answer")
            }
            Self::ResponseTooLarge => row(
                StatusCode::BAD_GATEWAY,
                "response_too_large",
                "The function's answer is larger than allowed",
            ),
            Self::RequestTimeout => {
                row(StatusCode::GATEWAY_TIMEOUT, "request_timeout", "The function took longer than allowed")
            }
            Self::MemoryLimit => {
                row(StatusCode::BAD_GATEWAY, "memory_limit", "The function wanted more memory than allowed")
            }
            Self::TableLimit => row(
                StatusCode::BAD_GATEWAY,
                "table_limit",
                "The function wanted more table elements than allowed",
            ),
            Self::InstanceLimit => row(
                StatusCode::BAD_GATEWAY,
                "instance_limit",
                "The component is made of more parts than allowed",
            ),
            Self::CpuLimit => {
                row(StatusCode::GATEWAY_TIMEOUT, "cpu_limit", "The function computed longer than allowed")
            }
            Self::StackLimit => {
                row(StatusCode::BAD_GATEWAY, "stack_limit", "The function's calls went deeper than allowed")
            }
            Self::HostMemoryLimit => row(
                StatusCode::BAD_GATEWAY,
                "host_memory_limit",
                "The function wanted the host to keep more than allowed",
            ),
            Self::ResourceLimit => {
                row(StatusCode::BAD_GATEWAY, "resource_limit", "The function held more handles than allowed")
            }
            Self::HeaderLimit => {
                row(StatusCode::BAD_GATEWAY, "header_limit", "The function made larger headers than allowed")
            }
            Self::HeadersTooLarge => row(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "The headers are larger than allowed",
            ),
            Self::OutboundLimit => {
                row(StatusCode::BAD_GATEWAY, "outbound_limit", "The function sent more requests than allowed")
            }
            Self::NodeMemory => {
                later(StatusCode::SERVICE_UNAVAILABLE, "node_memory", "The machine's memory is in use", 1)
            }
            Self::DeviceMemory => {
                later(StatusCode::SERVICE_UNAVAILABLE, "device_memory", "The device's memory is in use", 1)
            }
            Self::TenantMemory => later(
                StatusCode::TOO_MANY_REQUESTS,
                "tenant_memory",
                "The tenant's memory on the device is in use",
                1,
            ),
            Self::TenantOverloaded => later(
                StatusCode::TOO_MANY_REQUESTS,
                "tenant_overloaded",
                "The tenant has all the waiting calls or inferences that it may",
                1,
            ),
            Self::QueueTimeout => later(
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_timeout",
                "No lane of the device was free in time",
                1,
            ),
            Self::InferenceTimeout => {
                row(StatusCode::GATEWAY_TIMEOUT, "inference_timeout", "An inference took longer than allowed")
            }
            Self::PreparationTimeout => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "preparation_timeout",
                "Preparing the upload took longer than allowed",
            ),
            Self::PreparationMemory => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "preparation_memory",
                "Preparing the upload took more memory than allowed",
            ),
            Self::PreparationFailed => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "preparation_failed",
                "Preparing the upload ended the process that did it",
            ),
            Self::ModelMemory => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "model_memory",
                "The model needs more memory than allowed",
            ),
            Self::OperatorCost => row(
                StatusCode::UNPROCESSABLE_ENTITY,
                "operator_cost",
                "One operator of the model is more work than allowed",
            ),
            Self::StorageFull => {
                later(StatusCode::INSUFFICIENT_STORAGE, "storage_full", "The server's disk has no room", 30)
            }
            Self::StorageUnavailable => later(
                StatusCode::SERVICE_UNAVAILABLE,
                "storage_unavailable",
                "The server's disk does not take changes",
                5,
            ),
            Self::Internal => row(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed"),
        }
    }
}

impl Code {
    #[cfg(any(test, fuzzing))]
    pub const ALL: [Self; 52] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::TenantRequired,
        Self::TenantSuspended,
        Self::TooManyFailures,
        Self::RateLimited,
        Self::BudgetExhausted,
        Self::QuotaExceeded,
        Self::Conflict,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::InvalidName,
        Self::InvalidRequest,
        Self::UnsupportedMediaType,
        Self::TooLarge,
        Self::UploadTimeout,
        Self::InvalidConfig,
        Self::InvalidComponent,
        Self::InvalidModel,
        Self::UnsupportedFormat,
        Self::ModelInUse,
        Self::FunctionOverloaded,
        Self::ServerOverloaded,
        Self::StartFailed,
        Self::StartTimeout,
        Self::FunctionFailed,
        Self::ResponseTooLarge,
        Self::RequestTimeout,
        Self::MemoryLimit,
        Self::TableLimit,
        Self::InstanceLimit,
        Self::CpuLimit,
        Self::StackLimit,
        Self::HostMemoryLimit,
        Self::ResourceLimit,
        Self::HeaderLimit,
        Self::HeadersTooLarge,
        Self::OutboundLimit,
        Self::NodeMemory,
        Self::DeviceMemory,
        Self::TenantMemory,
        Self::TenantOverloaded,
        Self::QueueTimeout,
        Self::InferenceTimeout,
        Self::PreparationTimeout,
        Self::PreparationMemory,
        Self::PreparationFailed,
        Self::ModelMemory,
        Self::OperatorCost,
        Self::StorageFull,
        Self::StorageUnavailable,
        Self::Internal,
    ];

    /// The stable name.
    #[cfg(test)]
    pub fn name(self) -> &'static str {
        self.row().code
    }
}

/// A refusal: a code, and a sentence for whoever asked.
#[derive(Debug)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// What went wrong is for the operator's log; the client learns that it did.
    pub fn internal(error: &anyhow::Error) -> Self {
        tracing::error!(error = format!("{error:#}"), "internal error");
        Self::new(Code::Internal, "the server failed; its log says why")
    }

    pub fn no_function(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no function `{name}`"))
    }

    pub fn no_tenant(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no tenant `{name}`"))
    }

    pub fn no_model(name: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no model `{name}`"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Row { status, code, title, retry_after } = self.code.row();
        let body = json!({
            "type": format!("urn:weir:problem:{code}"),
            "title": title,
            "status": status.as_u16(),
            "code": code,
            "detail": self.detail,
            "retryable": retry_after.is_some(),
        });
        let mut response = (status, body.to_string()).into_response();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_and_documented() {
        let codes: HashSet<&str> = Code::ALL.iter().map(|code| code.row().code).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        let page = include_str!("../../../docs/problems.md");
        for code in Code::ALL {
            let row = format!("| `{}` | {} |", code.row().code, code.row().status.as_u16());
            assert!(page.contains(&row), "docs/problems.md lacks the row {row}");
        }
    }
}
