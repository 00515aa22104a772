//! What goes wrong in a function, and the answer it becomes.
//!
//! An [`Error`] that leaves the function is answered with its status and an `application/problem+json` body
//! (RFC 9457) that carries a stable `code`; one with a status of 500 or more is also a line in the function's
//! log. Codes of the SDK's own making:
//!
//! | from | status | code |
//! | --- | --- | --- |
//! | [`Request::json`](crate::Request::json), [`Request::text`](crate::Request::text) | 400 | `invalid_json`, `invalid_text` |
//! | the body could not be read; was larger than the host takes | 400; 413 | `unreadable_body`; `body_too_large` |
//! | a shape or an element type that does not fit; `wasi:nn` `invalid-argument` | 400 | `invalid_tensor` |
//! | `wasi:nn` `not-found`, `security` | 500 | `model_unavailable` |
//! | `wasi:nn` `invalid-encoding`, `unsupported-operation` | 500 | `model_unsupported` |
//! | `wasi:nn` `runtime-error`, `unknown` | 500 | `model_failed` |
//! | `wasi:nn` `too-large` (memory or quota), `timeout` | 503, `Retry-After: 1` | `model_too_large`, `model_timeout` |
//! | an output asked for that the model does not have | 500 | `no_such_output` |
//! | no route of a [`Router`](crate::Router) for the path; for the method | 404; 405 with `Allow` | `not_found`; `method_not_allowed` |
//! | a parameter of the path that is not what it should be | 400 | `invalid_parameter` |
//! | a [`Fetch`](crate::Fetch) that found no answer, or not the one expected | 502 | `fetch_failed` |
//! | a value missing from the function's configuration | 500 | `missing_config` |
//! | a status or header that HTTP does not allow | 500 | `invalid_response` |
//! | any other `std::error::Error` through `?` | 500 | `function_error` |

use std::borrow::Cow;
use std::fmt;

use crate::bindings::wasi::nn::errors::ErrorCode;
use crate::host::NnFailure;

/// Why a function could not answer: an HTTP status, a stable code for programs, and a sentence for people.
///
/// Every `std::error::Error` becomes one through `?`, with status 500 and code `function_error`; the caller
/// reads its text. So that this conversion can exist, `Error` is itself no `std::error::Error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    status: u16,
    code: Cow<'static, str>,
    detail: String,
    headers: Vec<(String, String)>,
}

impl Error {
    /// An error with this status (400 to 599; anything else is answered as 500), code (`snake_case`) and
    /// detail.
    pub fn new(status: u16, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        let status = if (400..=599).contains(&status) { status } else { 500 };
        Self { status, code: code.into(), detail: detail.into(), headers: Vec::new() }
    }

    /// 400 `bad_request`: the caller's fault.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "bad_request", detail)
    }

    /// 404 `not_found`.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "not_found", detail)
    }

    /// 405 `method_not_allowed`, with an `Allow` header that lists `allowed`, such as `"GET, POST"`.
    pub fn method_not_allowed(allowed: &str) -> Self {
        Self::new(405, "method_not_allowed", format!("use {allowed}")).with_header("allow", allowed)
    }

    /// Adds a header to the answer.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same error with what it is about before its detail.
    pub(crate) fn about(self, what: &str) -> Self {
        Self { detail: format!("{what}: {}", self.detail), ..self }
    }

    /// The HTTP status, 400 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The headers added to the answer.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The error of a `wasi:nn` call that was about `what`, by the table at the head of this file.
    pub(crate) fn from_nn(what: &str, (code, data): NnFailure) -> Self {
        let (status, ours, meaning) = match code {
            ErrorCode::InvalidArgument => (400, "invalid_tensor", "invalid argument"),
            ErrorCode::NotFound => (500, "model_unavailable", "not found"),
            ErrorCode::Security => (500, "model_unavailable", "not allowed"),
            ErrorCode::InvalidEncoding => (500, "model_unsupported", "invalid encoding"),
            ErrorCode::UnsupportedOperation => (500, "model_unsupported", "unsupported operation"),
            ErrorCode::RuntimeError => (500, "model_failed", "runtime error"),
            ErrorCode::Unknown => (500, "model_failed", "unknown error"),
            ErrorCode::TooLarge => (503, "model_too_large", "too large"),
            ErrorCode::Timeout => (503, "model_timeout", "timed out"),
        };
        let detail = if data.is_empty() { format!("{what}: {meaning}") } else { format!("{what}: {data}") };
        let error = Self::new(status, ours, detail);
        if status == 503 { error.with_header("retry-after", "1") } else { error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.code, self.detail)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut detail = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            detail.push_str(": ");
            detail.push_str(&source.to_string());
            cause = source.source();
        }
        Self::new(500, "function_error", detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_standard_error_is_a_function_error_with_its_text() {
        fn parse(text: &str) -> Result<u8, Error> {
            Ok(text.parse::<u8>()?)
        }
        let error = parse("x").unwrap_err();
        assert_eq!((error.status(), error.code()), (500, "function_error"));
        assert_eq!(error.detail(), "invalid digit found in string");
    }

    #[test]
    fn a_status_that_is_no_error_is_answered_as_500() {
        assert_eq!(Error::new(200, "odd", "").status(), 500);
        assert_eq!(Error::new(599, "odd", "").status(), 599);
    }

    #[test]
    fn model_errors_follow_the_table() {
        let error = Error::from_nn(
            "model `m`",
            (ErrorCode::InvalidArgument, "input `x`: expected [1, 4]".to_string()),
        );
        assert_eq!(error.to_string(), "400 invalid_tensor: model `m`: input `x`: expected [1, 4]");
        let error = Error::from_nn("model `m`", (ErrorCode::Timeout, String::new()));
        assert_eq!(error.to_string(), "503 model_timeout: model `m`: timed out");
        assert_eq!(error.headers(), [("retry-after".to_string(), "1".to_string())]);
    }
}
