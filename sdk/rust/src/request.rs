//! The request of one call. Its body is read when it is first asked for, so a function that refuses a request
//! by its method or headers never takes the body in.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};

use serde::de::DeserializeOwned;

use crate::Error;
use crate::bindings::wasi::http::types::{ErrorCode, IncomingBody, IncomingRequest, Method, http_error_code};
use crate::bindings::wasi::io::streams::{InputStream, StreamError};

/// The most bytes asked of the host in one read of a body.
const READ_BYTES: u64 = 64 * 1024;

/// The most memory set aside because of what `content-length` says alone.
const MAX_RESERVE_BYTES: usize = 1024 * 1024;

/// An HTTP request. Read it with `&self`: the body is taken in once and kept.
#[derive(Debug)]
pub struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, Vec<u8>)>,
    /// The host's side of the request, until the body is taken from it.
    incoming: RefCell<Option<IncomingRequest>>,
    body: OnceCell<Vec<u8>>,
}

impl Request {
    /// A request that no host sent, for tests: `path` may have a query.
    pub fn new(method: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let (path, query) = split_target(path);
        Self {
            method: method.to_string(),
            path,
            query,
            headers: Vec::new(),
            incoming: RefCell::new(None),
            body: OnceCell::from(body.into()),
        }
    }

    /// The same request with a header more, for tests.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_string(), value.as_bytes().to_vec()));
        self
    }

    pub(crate) fn from_host(incoming: IncomingRequest) -> Self {
        let method = match incoming.method() {
            Method::Get => "GET".to_string(),
            Method::Head => "HEAD".to_string(),
            Method::Post => "POST".to_string(),
            Method::Put => "PUT".to_string(),
            Method::Delete => "DELETE".to_string(),
            Method::Connect => "CONNECT".to_string(),
            Method::Options => "OPTIONS".to_string(),
            Method::Trace => "TRACE".to_string(),
            Method::Patch => "PATCH".to_string(),
            Method::Other(name) => name,
        };
        let (path, query) = split_target(&incoming.path_with_query().unwrap_or_default());
        let headers = incoming.headers().entries();
        Self { method, path, query, headers, incoming: RefCell::new(Some(incoming)), body: OnceCell::new() }
    }

    /// The method in capitals, such as `"POST"`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// 405 `method_not_allowed` unless the method is this one.
    pub fn require_method(&self, method: &str) -> Result<(), Error> {
        if self.method == method { Ok(()) } else { Err(Error::method_not_allowed(method)) }
    }

    /// The path as the host hands it over, beginning with `/`, without the query and not percent-decoded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The first value of `name` in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The query's pairs in order, percent-decoded, `+` read as a space; a key without `=` has an empty
    /// value.
    pub fn query_pairs(&self) -> &[(String, String)] {
        &self.query
    }

    /// The first header of this name, in any case, if its value is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// All headers, in order.
    pub fn headers(&self) -> &[(String, Vec<u8>)] {
        &self.headers
    }

    /// The whole body. Errors: 413 `body_too_large`, 400 `unreadable_body`.
    pub fn body(&self) -> Result<&[u8], Error> {
        if self.body.get().is_none() {
            let mut body = Vec::with_capacity(self.content_length().unwrap_or(0).min(MAX_RESERVE_BYTES));
            for chunk in Chunks::of(self.incoming.take())? {
                body.extend_from_slice(&chunk?);
            }
            return Ok(self.body.get_or_init(|| body));
        }
        Ok(self.body.get().map_or(&[], Vec::as_slice))
    }

    /// The body as UTF-8, or 400 `invalid_text`.
    pub fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(self.body()?)
            .map_err(|error| Error::new(400, "invalid_text", format!("the body is not UTF-8: {error}")))
    }

    /// The body as JSON, or 400 `invalid_json` with the line and column.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(self.body()?).map_err(|error| {
            Error::new(400, "invalid_json", format!("the body is not the JSON expected: {error}"))
        })
    }

    /// The body piece by piece, for bodies that need not be in memory at once.
    pub fn into_chunks(self) -> Result<Chunks, Error> {
        match self.body.into_inner() {
            Some(body) => Ok(Chunks { source: Source::Memory(body) }),
            None => Chunks::of(self.incoming.take()),
        }
    }

    fn content_length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }
}

/// The pieces of a body, in order, each at most 64 KiB when it comes from the host. After an error there are
/// no more.
#[derive(Debug)]
pub struct Chunks {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Fields drop in order: the stream must go before the body it belongs to.
    Host {
        stream: InputStream,
        _body: IncomingBody,
        _request: IncomingRequest,
    },
    Memory(Vec<u8>),
    End,
}

impl Chunks {
    fn of(incoming: Option<IncomingRequest>) -> Result<Self, Error> {
        let taken = || Error::new(400, "unreadable_body", "the body was already taken");
        let request = incoming.ok_or_else(taken)?;
        let body = request.consume().map_err(|()| taken())?;
        let stream = body.stream().map_err(|()| taken())?;
        Ok(Self { source: Source::Host { stream, _body: body, _request: request } })
    }
}

impl Iterator for Chunks {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Source::Host { stream, .. } = &self.source {
            match stream.blocking_read(READ_BYTES) {
                Ok(chunk) => return Some(Ok(chunk)),
                Err(error) => {
                    let error = read_error(error);
                    self.source = Source::End;
                    return error.map(Err);
                }
            }
        }
        match std::mem::replace(&mut self.source, Source::End) {
            Source::Memory(body) if !body.is_empty() => Some(Ok(body)),
            _ => None,
        }
    }
}

/// `None` at the body's ordinary end.
fn read_error(error: StreamError) -> Option<Error> {
    let StreamError::LastOperationFailed(error) = error else { return None };
    Some(match http_error_code(&error) {
        Some(ErrorCode::HttpRequestBodySize(_)) => {
            Error::new(413, "body_too_large", "the request's body is larger than the host takes")
        }
        _ => Error::new(400, "unreadable_body", format!("the body ended early: {}", error.to_debug_string())),
    })
}

/// `/path?query` in its two parts, the query decoded.
fn split_target(target: &str) -> (String, Vec<(String, String)>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = if path.is_empty() { "/" } else { path };
    (path.to_string(), parse_query(query))
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Reads `application/x-www-form-urlencoded` (URL standard, section 5.1): `+` is a space, `%xy` a byte; a `%`
/// that no two hex digits follow stays; bytes that are not UTF-8 become U+FFFD.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = tail;
            }
            (other, _) => bytes.push(*other),
        }
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => text.to_string(),
        Cow::Owned(text) => text,
    }
}

/// The value of an ASCII hex digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_decoded() {
        let request =
            Request::new("GET", "/a%20b?name=J%C3%BCrgen+K&flag&x=1&x=2&bad=%zz%4&=v&bytes=%ff", "");
        assert_eq!(request.path(), "/a%20b");
        assert_eq!(request.query("name"), Some("Jürgen K"));
        assert_eq!(request.query("flag"), Some(""));
        assert_eq!(request.query("x"), Some("1"));
        assert_eq!(request.query("bad"), Some("%zz%4"));
        assert_eq!(request.query("bytes"), Some("\u{fffd}"));
        assert_eq!(request.query("none"), None);
        assert_eq!(request.query_pairs().len(), 7);
    }

    #[test]
    fn a_path_is_never_empty() {
        assert_eq!(Request::new("GET", "", "").path(), "/");
        assert_eq!(Request::new("GET", "?a=1", "").query("a"), Some("1"));
    }

    #[test]
    fn headers_are_found_in_any_case() {
        let request = Request::new("GET", "/", "").with_header("Content-Type", "text/plain");
        assert_eq!(request.header("content-type"), Some("text/plain"));
        assert_eq!(request.header("accept"), None);
    }

    #[test]
    fn bodies_are_checked() {
        let request = Request::new("POST", "/", "{\"a\": 1,}");
        let error = request.json::<serde_json::Value>().unwrap_err();
        assert_eq!((error.status(), error.code()), (400, "invalid_json"));
        assert!(error.detail().contains("line 1 column 9"), "{error}");
        let request = Request::new("POST", "/", [0xff]);
        assert_eq!(request.text().unwrap_err().code(), "invalid_text");
        assert_eq!(request.body().unwrap(), [0xff]);
    }

    #[test]
    fn a_body_in_memory_is_one_chunk() {
        let chunks = Request::new("POST", "/", "abc").into_chunks().unwrap();
        let chunks: Vec<Vec<u8>> = chunks.map(Result::unwrap).collect();
        assert_eq!(chunks, [b"abc"]);
        assert_eq!(Request::new("POST", "/", "").into_chunks().unwrap().count(), 0);
    }

    #[test]
    fn the_wrong_method_is_refused() {
        let request = Request::new("GET", "/", "");
        assert!(request.require_method("GET").is_ok());
        assert_eq!(request.require_method("POST").unwrap_err().status(), 405);
    }
}
