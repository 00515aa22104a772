//! The answer of one call: bytes that are ready, or parts that are sent as they are made.

use std::fmt;
use std::pin::Pin;

use futures_core::Stream;
use serde::Serialize;

use crate::events::Event;
use crate::{Error, host};

/// An HTTP response: a status, headers and a body. `content-length` is added to a body that is held in memory.
///
/// A header that HTTP does not allow is found when the response is sent; the caller then gets 500
/// `invalid_response`.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

/// What is sent after the head.
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Parts(Box<dyn Iterator<Item = Result<Vec<u8>, Error>>>),
    Stream(Pin<Box<dyn Stream<Item = Result<Vec<u8>, Error>>>>),
}

impl Body {
    /// Part by part, each made when it is asked for.
    pub fn into_parts(self) -> Box<dyn Iterator<Item = Result<Vec<u8>, Error>>> {
        match self {
            Self::Bytes(bytes) => Box::new(Some(bytes).filter(|bytes| !bytes.is_empty()).map(Ok).into_iter()),
            Self::Parts(parts) => parts,
            Self::Stream(mut stream) => Box::new(std::iter::from_fn(move || {
                host::block_on(std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)))
            })),
        }
    }

    /// All of it, or the error that ended it.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn into_bytes(self) -> Result<Vec<u8>, Error> {
        if let Self::Bytes(bytes) = self {
            return Ok(bytes);
        }
        Ok(self.into_parts().collect::<Result<Vec<_>, _>>()?.concat())
    }
}

impl Response {
    /// An empty response with this status.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Bytes(Vec::new()) }
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
        Self::with_body(content_type, Body::Bytes(body.into()))
    }

    /// 200 with a body that is made while it is sent: each part goes out before the next one is asked for.
    ///
    /// The head has gone before the first part is made. So an error among the parts ends the body unfinished, which the caller
    /// sees as a connection that broke off, and is a line in the function's log.
    pub fn stream<P: Into<Vec<u8>>>(
        content_type: &str,
        parts: impl IntoIterator<Item = Result<P, Error>, IntoIter: 'static>,
    ) -> Self {
        let parts = parts.into_iter().map(|part| part.map(Into::into));
        Self::with_body(content_type, Body::Parts(Box::new(parts)))
    }

    /// The same for a `Stream` of async code, such as [`Chunks`](crate::Chunks).
    pub fn stream_async(
        content_type: &str,
        parts: impl Stream<Item = Result<Vec<u8>, Error>> + 'static,
    ) -> Self {
        Self::with_body(content_type, Body::Stream(Box::pin(parts)))
    }

    /// 200 with server-sent events (`text/event-stream`), each sent when it is made.
    pub fn events(events: impl IntoIterator<Item = Result<Event, Error>, IntoIter: 'static>) -> Self {
        let parts = events.into_iter().map(|event| event.map(|event| event.to_string()));
        Self::stream("text/event-stream", parts).with_header("cache-control", "no-cache")
    }

    fn with_body(content_type: &str, body: Body) -> Self {
        Self { body, ..Self::new(200) }.with_header("content-type", content_type)
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

    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body that is held in memory; empty where it is made while it is sent (see [`Response::into_parts`]).
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Body::Bytes(bytes) => bytes,
            Body::Parts(_) | Body::Stream(_) => &[],
        }
    }

    /// The body's parts, each made when it is asked for; one that is held in memory is one part.
    pub fn into_parts(self) -> impl Iterator<Item = Result<Vec<u8>, Error>> {
        self.body.into_parts()
    }

    /// The same response without its body, as HEAD is answered.
    pub(crate) fn without_body(mut self) -> Self {
        if let (Some(length), None) = (self.content_length(), self.header("content-length")) {
            self.headers.push(("content-length".to_string(), length.to_string()));
        }
        Self { body: Body::Bytes(Vec::new()), ..self }
    }

    /// The same response with its body made; an error among its parts takes its place.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn into_made(self) -> Self {
        let Self { status, headers, body } = self;
        match body.into_bytes() {
            Ok(bytes) => Self { status, headers, body: Body::Bytes(bytes) },
            Err(error) => Self::from(error),
        }
    }

    /// What `content-length` is to say, where it belongs in the answer: not where HTTP forbids it, the function set it, or the
    /// body is not made yet.
    pub(crate) fn content_length(&self) -> Option<usize> {
        let Body::Bytes(bytes) = &self.body else { return None };
        let forbidden = matches!(self.status, 204 | 304);
        (!forbidden && self.header("content-length").is_none()).then_some(bytes.len())
    }

    #[cfg(target_arch = "wasm32")]
    pub(crate) fn into_body(self) -> Body {
        self.body
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Parts(_) | Self::Stream(_) => f.write_str("parts"),
        }
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
        406 => "Not Acceptable",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
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
        assert_eq!(Response::text("x").content_length(), Some(1));
        assert_eq!(Response::new(200).content_length(), Some(0));
        assert_eq!(Response::new(204).content_length(), None);
        assert_eq!(Response::new(200).with_header("Content-Length", "0").content_length(), None);
        assert_eq!(Response::stream("text/plain", [Ok("x")]).content_length(), None);
    }

    #[test]
    fn parts_are_made_when_they_are_asked_for() {
        let made = std::rc::Rc::new(std::cell::Cell::new(0));
        let count = made.clone();
        let parts = (0..3).map(move |n| {
            count.set(n + 1);
            Ok(format!("{n} "))
        });
        let response = Response::stream("text/plain", parts);
        assert_eq!((response.body(), made.get()), (&[][..], 0));
        let mut parts = response.into_parts();
        assert_eq!((parts.next().unwrap().unwrap(), made.get()), (b"0 ".to_vec(), 1));
        assert_eq!((parts.count(), made.get()), (2, 3));
    }

    #[test]
    fn head_keeps_the_length_of_what_it_leaves_out() {
        let response = Response::text("four").without_body();
        assert_eq!((response.header("content-length"), response.body()), (Some("4"), &[][..]));
    }
}
