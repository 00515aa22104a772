//! The stable codes of refusals: one table says what each means to a client, and there is no other place that picks a status.

use http::StatusCode;

use crate::meter::record::Outcome;

/// What a code means to a client.
pub(super) struct Row {
    pub status: StatusCode,
    pub code: &'static str,
    pub title: &'static str,
    /// Whether the same request may succeed later, and after how many seconds to try.
    pub retry_after: Option<u32>,
}

macro_rules! codes {
    ($($code:ident = $status:ident, $name:literal, $title:literal $(, after $seconds:literal)?;)*) => {
        /// The stable codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($code),*
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$code),*];

            pub(super) fn row(self) -> Row {
                match self {
                    $(Self::$code => Row {
                        status: StatusCode::$status,
                        code: $name,
                        title: $title,
                        retry_after: codes!(@after $($seconds)?),
                    }),*
                }
            }
        }
    };
    (@after) => { None };
    (@after $seconds:literal) => { Some($seconds) };
}

codes! {
    Unauthorized = UNAUTHORIZED, "unauthorized", "There is no key, or one that is no good";
    Forbidden = FORBIDDEN, "forbidden", "The key is not for this";
    TenantRequired = BAD_REQUEST, "tenant_required", "Whose things are meant is not said";
    TenantSuspended = FORBIDDEN, "tenant_suspended", "The tenant is suspended";
    TooManyFailures = TOO_MANY_REQUESTS, "too_many_failures", "Too many wrong keys came from this address", after 3;
    RateLimited = TOO_MANY_REQUESTS, "rate_limited", "Calls come more often than they may", after 1;
    BudgetExhausted = PAYMENT_REQUIRED, "budget_exhausted", "The tenant has spent all that it may in this month";
    QuotaExceeded = FORBIDDEN, "quota_exceeded", "The tenant has all that it may";
    Conflict = CONFLICT, "conflict", "It cannot be so while something else is";
    IdempotencyMismatch = UNPROCESSABLE_ENTITY, "idempotency_mismatch", "The idempotency key stands for another request";
    PreconditionFailed = PRECONDITION_FAILED, "precondition_failed", "It is not as the request says it must be";
    NotFound = NOT_FOUND, "not_found", "There is no such thing";
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method_not_allowed", "This resource does not have that method";
    InvalidName = BAD_REQUEST, "invalid_name", "The name cannot be used";
    InvalidRequest = BAD_REQUEST, "invalid_request", "The request is not understood";
    UnsupportedMediaType = UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is of a type that is not read here";
    TooLarge = PAYLOAD_TOO_LARGE, "too_large", "The body is larger than allowed";
    UploadTimeout = REQUEST_TIMEOUT, "upload_timeout", "The body took longer than allowed";
    InvalidConfig = UNPROCESSABLE_ENTITY, "invalid_config", "The configuration cannot be used";
    InvalidComponent = UNPROCESSABLE_ENTITY, "invalid_component", "The component cannot be a function";
    InvalidSignature = UNPROCESSABLE_ENTITY, "invalid_signature", "The signature is not one of these bytes by a key of the tenant";
    // It is understood, and could be deployed: for this tenant it may not.
    PolicyViolation = FORBIDDEN, "policy_violation", "The operator's policy does not allow it";
    InvalidModel = UNPROCESSABLE_ENTITY, "invalid_model", "The model cannot be prepared";
    UnsupportedFormat = UNPROCESSABLE_ENTITY, "unsupported_format", "The model's format is not read here";
    ModelInUse = CONFLICT, "model_in_use", "A function may use the model";
    FunctionOverloaded = TOO_MANY_REQUESTS, "function_overloaded", "The function has all the calls it may", after 1;
    ServerOverloaded = SERVICE_UNAVAILABLE, "server_overloaded", "The machine has all the sandboxes it may", after 1;
    StartFailed = SERVICE_UNAVAILABLE, "start_failed", "The function did not start", after 5;
    StartTimeout = SERVICE_UNAVAILABLE, "start_timeout", "The function did not start in time", after 1;
    FunctionFailed = BAD_GATEWAY, "function_failed", "The function ended without an answer";
    ResponseTooLarge = BAD_GATEWAY, "response_too_large", "The function's answer is larger than allowed";
    RequestTimeout = GATEWAY_TIMEOUT, "request_timeout", "The function took longer than allowed";
    MemoryLimit = BAD_GATEWAY, "memory_limit", "The function wanted more memory than allowed";
    TableLimit = BAD_GATEWAY, "table_limit", "The function wanted more table elements than allowed";
    InstanceLimit = BAD_GATEWAY, "instance_limit", "The component is made of more parts than allowed";
    CpuLimit = GATEWAY_TIMEOUT, "cpu_limit", "The function computed longer than allowed";
    StackLimit = BAD_GATEWAY, "stack_limit", "The function's calls went deeper than allowed";
    HostMemoryLimit = BAD_GATEWAY, "host_memory_limit", "The function wanted the host to keep more than allowed";
    ResourceLimit = BAD_GATEWAY, "resource_limit", "The function held more handles than allowed";
    HeaderLimit = BAD_GATEWAY, "header_limit", "The function made larger headers than allowed";
    HeadersTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "The headers are larger than allowed";
    OutboundLimit = BAD_GATEWAY, "outbound_limit", "The function sent more requests than allowed";
    NodeMemory = SERVICE_UNAVAILABLE, "node_memory", "The machine's memory is in use", after 1;
    DeviceMemory = SERVICE_UNAVAILABLE, "device_memory", "The device's memory is in use", after 1;
    TenantMemory = TOO_MANY_REQUESTS, "tenant_memory", "The tenant's memory on the device is in use", after 1;
    TenantOverloaded = TOO_MANY_REQUESTS, "tenant_overloaded", "The tenant has all the waiting calls or inferences that it may", after 1;
    QueueTimeout = SERVICE_UNAVAILABLE, "queue_timeout", "No lane of the device was free in time", after 1;
    InferenceTimeout = GATEWAY_TIMEOUT, "inference_timeout", "An inference took longer than allowed";
    PreparationTimeout = UNPROCESSABLE_ENTITY, "preparation_timeout", "Preparing the upload took longer than allowed";
    PreparationMemory = UNPROCESSABLE_ENTITY, "preparation_memory", "Preparing the upload took more memory than allowed";
    PreparationFailed = UNPROCESSABLE_ENTITY, "preparation_failed", "Preparing the upload ended the process that did it";
    ModelMemory = UNPROCESSABLE_ENTITY, "model_memory", "The model needs more memory than allowed";
    OperatorCost = UNPROCESSABLE_ENTITY, "operator_cost", "One operator of the model is more work than allowed";
    StorageFull = INSUFFICIENT_STORAGE, "storage_full", "The server's disk has no room", after 30;
    StorageUnavailable = SERVICE_UNAVAILABLE, "storage_unavailable", "The server's disk does not take changes", after 5;
    Stopping = SERVICE_UNAVAILABLE, "stopping", "The server stops", after 5;
    Internal = INTERNAL_SERVER_ERROR, "internal", "The server failed";
}

impl Code {
    /// The stable name.
    pub fn name(self) -> &'static str {
        self.row().code
    }

    pub fn status(self) -> StatusCode {
        self.row().status
    }

    pub fn is_retryable(self) -> bool {
        self.row().retry_after.is_some()
    }

    /// How a call ended that is answered with it.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::FunctionFailed
            | Self::ResponseTooLarge
            | Self::MemoryLimit
            | Self::TableLimit
            | Self::InstanceLimit
            | Self::CpuLimit
            | Self::StackLimit
            | Self::HostMemoryLimit
            | Self::ResourceLimit
            | Self::HeaderLimit
            | Self::OutboundLimit => Outcome::Failed,
            Self::RequestTimeout | Self::InferenceTimeout => Outcome::TimedOut,
            Self::Unauthorized
            | Self::Forbidden
            | Self::TenantRequired
            | Self::TenantSuspended
            | Self::TooManyFailures
            | Self::RateLimited
            | Self::BudgetExhausted
            | Self::QuotaExceeded
            | Self::Conflict
            | Self::IdempotencyMismatch
            | Self::PreconditionFailed
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::InvalidName
            | Self::InvalidRequest
            | Self::UnsupportedMediaType
            | Self::TooLarge
            | Self::UploadTimeout
            | Self::HeadersTooLarge
            | Self::InvalidConfig
            | Self::InvalidComponent
            | Self::InvalidSignature
            | Self::PolicyViolation
            | Self::InvalidModel
            | Self::UnsupportedFormat
            | Self::ModelInUse
            | Self::FunctionOverloaded
            | Self::ServerOverloaded
            | Self::NodeMemory
            | Self::DeviceMemory
            | Self::TenantMemory
            | Self::TenantOverloaded
            | Self::QueueTimeout
            | Self::StartFailed
            | Self::StartTimeout
            | Self::PreparationTimeout
            | Self::PreparationMemory
            | Self::PreparationFailed
            | Self::ModelMemory
            | Self::OperatorCost
            | Self::StorageFull
            | Self::StorageUnavailable
            | Self::Stopping
            | Self::Internal => Outcome::Refused,
        }
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
