use serde::Serialize;

use crate::Error;

/// An HTTP response: a status, headers and a body held in memory. `content-length` is added when it is sent.
///
/// A header that HTTP does not allow is found when the response is sent; the caller then gets 500
/// `invalid_response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    /// An empty response with this status.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// 200 with `value` as `application/json`. A value that JSON cannot hold, such as a map whose keys are no
    /// strings: 500 `function_error`.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        Ok(Self::bytes("application/json", serde_json::to_vec(value)?))
    }

    /// 200 with `text` as `text/plain; charset=utf-8`.
    pub fn text(text: impl Into<String>) -> Self {
        Self::bytes("text/plain; charset=utf-8", text.into())
    }

    /// 200 with `body` as the given content type.
    pub fn bytes(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::new(200) }.with_header("content-type", content_type)
    }

    /// The same response with another status: 200 to 599, or 500 `invalid_response` is sent instead.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header. Several of one name are all sent.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The headers, in the order in which they were added.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether `content-length` belongs in the answer: not where HTTP forbids it, nor where the function set
    /// it.
    pub(crate) fn needs_content_length(&self) -> bool {
        let forbidden = matches!(self.status, 204 | 304);
        !forbidden && !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"))
    }
}

impl From<Error> for Response {
    /// The problem document (RFC 9457) that the caller reads.
    fn from(error: Error) -> Self {
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": title(error.status()),
            "status": error.status(),
            "code": error.code(),
            "detail": error.detail(),
        });
        let mut response =
            Self::bytes("application/problem+json", problem.to_string()).with_status(error.status());
        response.headers.extend_from_slice(error.headers());
        response
    }
}

/// The status's name in the HTTP standard, as RFC 9457 wants it beside `about:blank`; of the common ones.
fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ if status < 500 => "Client Error",
        _ => "Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_answered_as_a_problem() {
        let response = Response::from(Error::method_not_allowed("POST"));
        assert_eq!(response.status(), 405);
        assert_eq!(
            response.headers(),
            [("content-type", "application/problem+json"), ("allow", "POST")]
                .map(|(name, value)| (name.to_string(), value.to_string()))
        );
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let expected = serde_json::json!({
            "type": "about:blank", "title": "Method Not Allowed", "status": 405,
            "code": "method_not_allowed", "detail": "use POST",
        });
        assert_eq!(problem, expected);
    }

    #[test]
    fn content_length_is_left_out_where_http_forbids_it() {
        assert!(Response::text("x").needs_content_length());
        assert!(Response::new(200).needs_content_length());
        assert!(!Response::new(204).needs_content_length());
        assert!(!Response::new(200).with_header("Content-Length", "0").needs_content_length());
    }
}
