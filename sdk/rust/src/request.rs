//! The request of one call. Its body is read when it is first asked for, so a function that refuses a request
//! by its method or headers never takes the body in.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use crate::{Error, host};

/// The most memory set aside because of what `content-length` says alone.
const MAX_RESERVE_BYTES: usize = 1024 * 1024;

/// An HTTP request. Read it with `&self`: the body is taken in once and kept.
#[derive(Debug)]
pub struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, Vec<u8>)>,
    /// What the route's parameters stand for in the path, decoded.
    parameters: Vec<(String, String)>,
    /// The body, until it is asked for.
    source: RefCell<Source>,
    /// The whole body, once it was read.
    body: OnceCell<Vec<u8>>,
}

impl Request {
    /// A request that no host sent, for tests: `path` may have a query.
    pub fn new(method: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let request = Self::of(method.to_string(), path, Vec::new(), Source::End);
        Self { body: OnceCell::from(body.into()), ..request }
    }

    /// The same request with a body that comes in these parts, for tests.
    pub fn with_parts(self, parts: impl Iterator<Item = Result<Vec<u8>, Error>> + 'static) -> Self {
        Self { source: RefCell::new(Source::Parts(Box::new(parts))), body: OnceCell::new(), ..self }
    }

    /// The same request with a header more, for tests.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_string(), value.as_bytes().to_vec()));
        self
    }

    #[cfg(target_arch = "wasm32")]
    pub(crate) fn from_host(incoming: host::Incoming) -> Self {
        let (method, target, headers) = incoming.head();
        Self::of(method, &target, headers, Source::Asked(incoming))
    }

    fn of(method: String, target: &str, headers: Vec<(String, Vec<u8>)>, source: Source) -> Self {
        let (path, query) = split_target(target);
        let (source, body) = (RefCell::new(source), OnceCell::new());
        Self { method, path, query, headers, parameters: Vec::new(), source, body }
    }

    pub(crate) fn with_parameters<'a>(
        mut self,
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        self.parameters = parameters.map(|(name, value)| (name.to_string(), decode(value, false))).collect();
        self
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

    /// What stands in the path where the [`Router`](crate::Router)'s route has `{name}`, percent-decoded. Another type than it
    /// can be read as: 400 `invalid_parameter`; a name that the route does not have: 500 `function_error`.
    pub fn param<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        let Some((_, value)) = self.parameters.iter().find(|(key, _)| key == name) else {
            return Err(Error::new(500, "function_error", format!("the route has no parameter `{name}`")));
        };
        value.parse().map_err(|_| {
            let expected = std::any::type_name::<T>();
            Error::new(400, "invalid_parameter", format!("`{name}` in the path is no {expected}: {value:?}"))
        })
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
            for chunk in self.chunks()? {
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

    /// The body part by part as it comes, for bodies that need not be in memory at once: an iterator, and a stream for async code.
    pub fn into_chunks(mut self) -> Result<Chunks, Error> {
        match self.body.take() {
            Some(body) => Ok(Chunks(Source::Parts(Box::new(
                Some(body).filter(|body| !body.is_empty()).map(Ok).into_iter(),
            )))),
            None => self.chunks(),
        }
    }

    fn chunks(&self) -> Result<Chunks, Error> {
        let taken = || Error::new(400, "unreadable_body", "the body was already taken");
        match self.source.replace(Source::End) {
            Source::Asked(incoming) => Ok(Chunks::of(incoming.into_body().ok_or_else(taken)?)),
            Source::End => Err(taken()),
            source => Ok(Chunks(source)),
        }
    }

    fn content_length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }
}

/// The parts of a body, in order, each at most 64 KiB when it comes from the host. After an error there are no more.
#[derive(Debug)]
pub struct Chunks(Source);

/// Where a body comes from.
enum Source {
    /// The host, which was not asked for it yet.
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "tests' bodies are there"))]
    Asked(host::Incoming),
    Host(host::Body),
    /// A test.
    Parts(Box<dyn Iterator<Item = Result<Vec<u8>, Error>>>),
    End,
}

impl Chunks {
    pub(crate) fn of(body: host::Body) -> Self {
        Self(Source::Host(body))
    }
}

impl Iterator for Chunks {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Host(body) => body.next(),
            Source::Parts(parts) => parts.next(),
            Source::Asked(_) | Source::End => None,
        }
    }
}

impl Stream for Chunks {
    type Item = Result<Vec<u8>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            Source::Host(body) => body.poll_next(cx),
            _ => Poll::Ready(self.next()),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked(_) | Self::Host(_) => "the host",
            Self::Parts(_) => "parts",
            Self::End => "taken",
        })
    }
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
            (decode(key, true), decode(value, true))
        })
        .collect()
}

/// Reads percent-encoding, in a form as `application/x-www-form-urlencoded` (URL standard, section 5.1), where `+` is a space:
/// `%xy` is a byte; a `%` that no two hex digits follow stays; bytes that are not UTF-8 become U+FFFD.
fn decode(text: &str, form: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) if form => bytes.push(b' '),
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
    fn a_body_in_parts_is_read_as_one_and_taken_once() {
        let parts = || [Ok(b"ab".to_vec()), Ok(b"c".to_vec())].into_iter();
        let request = Request::new("POST", "/", "").with_parts(parts());
        assert_eq!((request.text().unwrap(), request.text().unwrap()), ("abc", "abc"));
        assert_eq!(request.into_chunks().unwrap().count(), 1);
        let request = Request::new("POST", "/", "").with_parts(parts());
        assert_eq!(request.into_chunks().unwrap().count(), 2);
        let cut = [Ok(b"ab".to_vec()), Err(Error::new(400, "unreadable_body", "cut"))];
        let request = Request::new("POST", "/", "").with_parts(cut.into_iter());
        assert_eq!(request.body().unwrap_err().detail(), "cut");
        assert_eq!(request.body().unwrap_err().detail(), "the body was already taken");
    }

    #[test]
    fn parameters_are_read_as_what_they_should_be() {
        let request =
            Request::new("GET", "/", "").with_parameters([("id", "a%20b+c"), ("n", "7")].into_iter());
        assert_eq!(request.param::<String>("id").unwrap(), "a b+c");
        assert_eq!(request.param::<u8>("n").unwrap(), 7);
        assert_eq!(request.param::<u8>("id").unwrap_err().code(), "invalid_parameter");
        assert_eq!(request.param::<u8>("none").unwrap_err().status(), 500);
    }

    #[test]
    fn the_wrong_method_is_refused() {
        let request = Request::new("GET", "/", "");
        assert!(request.require_method("GET").is_ok());
        assert_eq!(request.require_method("POST").unwrap_err().status(), 405);
    }
}
