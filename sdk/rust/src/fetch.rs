//! Requests of the function's own, to the hosts that its deployment allows.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::request::Chunks;
use crate::response::Body;
use crate::{Error, host};

/// A request to send: to a host that the function's configuration allows (`egress`), by `http` or `https`.
///
/// ```no_run
/// # use weir_sdk::{Error, Fetch, Response};
/// # fn example() -> Result<Response, Error> {
/// let answer = Fetch::get("https://api.example/items?page=2").header("accept", "application/json").send()?;
/// let items: Vec<String> = answer.json()?;
/// # Response::json(&items)
/// # }
/// ```
///
/// Whatever keeps it from being answered is 502 `fetch_failed`; an answer is an answer, whatever its status.
#[derive(Debug)]
pub struct Fetch {
    pub(crate) method: String,
    pub(crate) target: Target,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "a test's upstream answers at once"))]
    pub(crate) timeout: Option<Duration>,
    /// What is wrong with the request, told when it is sent.
    wrong: Option<Error>,
}

/// The parts of a URL that a request needs.
#[derive(Debug, Default)]
pub(crate) struct Target {
    pub scheme: String,
    pub authority: String,
    /// With the query, beginning with `/`.
    pub path: String,
}

impl Fetch {
    /// A request with this method, in capitals, to an absolute URL.
    pub fn new(method: &str, url: &str) -> Self {
        let target = target(url);
        let wrong = target.is_none().then(|| failed(method, url, "the URL is not absolute"));
        Self {
            method: method.to_string(),
            target: target.unwrap_or_default(),
            headers: Vec::new(),
            body: Body::Bytes(Vec::new()),
            timeout: None,
            wrong,
        }
    }

    /// A GET of this URL.
    pub fn get(url: &str) -> Self {
        Self::new("GET", url)
    }

    /// A POST to this URL.
    pub fn post(url: &str) -> Self {
        Self::new("POST", url)
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With these bytes as its body, and their number as `content-length`.
    pub fn body(self, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let length = bytes.len().to_string();
        Self { body: Body::Bytes(bytes), ..self }.header("content-length", length)
    }

    /// With `value` as a body of `application/json`.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.body(bytes).header("content-type", "application/json"),
            Err(error) => Self { wrong: Some(error.into()), ..self },
        }
    }

    /// With a body that is sent part by part, as they are made; an error among them ends it unfinished.
    pub fn stream(self, parts: impl Iterator<Item = Result<Vec<u8>, Error>> + 'static) -> Self {
        Self { body: Body::Parts(Box::new(parts)), ..self }
    }

    /// How long it may take to connect, and until the answer begins and goes on; without it, as long as the host lets it.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sends it and waits for the head of its answer.
    pub fn send(self) -> Result<Fetched, Error> {
        self.start()?.wait()
    }

    /// Sends it. Its answer is waited for later, by [`Fetching::wait`] or `.await`, so that several are under way at once.
    pub fn start(mut self) -> Result<Fetching, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let (method, url) = (self.method.clone(), self.url());
        match host::fetch(self) {
            Ok(answer) => Ok(Fetching { method, url, answer }),
            Err(why) => Err(failed(&method, &url, &why)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", self.target.scheme, self.target.authority, self.target.path)
    }
}

/// A request that was sent. As a future it is the head of its answer.
#[derive(Debug)]
pub struct Fetching {
    method: String,
    url: String,
    answer: host::Fetching,
}

impl Fetching {
    /// Waits for the head of the answer.
    pub fn wait(self) -> Result<Fetched, Error> {
        let answer = self.answer.wait();
        Fetched::of(self.method, self.url, answer)
    }
}

impl Future for Fetching {
    type Output = Result<Fetched, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(answer) = self.answer.poll(cx) else { return Poll::Pending };
        Poll::Ready(Fetched::of(self.method.clone(), self.url.clone(), answer))
    }
}

/// What an upstream answered. Its body is read when it is asked for.
#[derive(Debug)]
pub struct Fetched {
    method: String,
    url: String,
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    chunks: Chunks,
}

impl Fetched {
    fn of(method: String, url: String, answer: Result<host::Answered, String>) -> Result<Self, Error> {
        match answer {
            Ok((status, headers, body)) => {
                Ok(Self { method, url, status, headers, chunks: Chunks::of(body) })
            }
            Err(why) => Err(failed(&method, &url, &why)),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
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

    /// The answer itself, or 502 `fetch_failed` where its status is 400 or more.
    pub fn ok(self) -> Result<Self, Error> {
        if self.status < 400 {
            return Ok(self);
        }
        Err(failed(&self.method, &self.url, &format!("answered {}", self.status)))
    }

    /// The whole body.
    pub fn bytes(self) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        for chunk in self.chunks {
            body.extend_from_slice(&chunk?);
        }
        Ok(body)
    }

    /// The body as text, or 502 `fetch_failed` if it is not UTF-8.
    pub fn text(self) -> Result<String, Error> {
        let (method, url) = (self.method.clone(), self.url.clone());
        String::from_utf8(self.bytes()?)
            .map_err(|error| failed(&method, &url, &format!("its body is not UTF-8: {error}")))
    }

    /// The body as JSON, or 502 `fetch_failed` with the line and column.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let (method, url) = (self.method.clone(), self.url.clone());
        serde_json::from_slice(&self.bytes()?)
            .map_err(|error| failed(&method, &url, &format!("its body is not the JSON expected: {error}")))
    }

    /// The body part by part, as it comes.
    pub fn into_chunks(self) -> Chunks {
        self.chunks
    }
}

fn failed(method: &str, url: &str, why: &str) -> Error {
    Error::new(502, "fetch_failed", format!("{method} {url}: {why}"))
}

/// The parts of an absolute URL, without its fragment.
fn target(url: &str) -> Option<Target> {
    let url = url.split('#').next().unwrap_or(url);
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if scheme.is_empty() || authority.is_empty() {
        return None;
    }
    let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
    Some(Target { scheme: scheme.to_ascii_lowercase(), authority: authority.to_string(), path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Response;
    use crate::testing::Host;

    #[test]
    fn a_url_is_taken_apart() {
        let target = target("HTTPS://api.example:8443?a=1#part").unwrap();
        assert_eq!(
            (&*target.scheme, &*target.authority, &*target.path),
            ("https", "api.example:8443", "/?a=1")
        );
        assert!(super::target("/relative").is_none());
        assert!(super::target("http:///path").is_none());
    }

    #[test]
    fn an_answer_is_an_answer_and_all_else_is_an_error_with_the_url() {
        let host = Host::new().with_upstream(|url, request| match url {
            "http://up.example/echo?a=1" => {
                assert_eq!((request.method(), request.header("x-ask")), ("POST", Some("yes")));
                Ok(Response::bytes("text/plain", request.body()?.to_vec()).with_status(404))
            }
            _ => Err(Error::new(502, "gone", "connection refused")),
        });
        host.start().run(|| {
            let fetch = || Fetch::post("http://up.example/echo?a=1").header("x-ask", "yes").body("hi");
            let answer = fetch().send().unwrap();
            assert_eq!((answer.status(), answer.header("Content-Type")), (404, Some("text/plain")));
            assert_eq!(answer.text().unwrap(), "hi");
            let error = fetch().send().unwrap().ok().unwrap_err();
            assert_eq!(error.to_string(), "502 fetch_failed: POST http://up.example/echo?a=1: answered 404");
            let error = Fetch::get("http://down.example").send().unwrap_err();
            assert_eq!(error.to_string(), "502 fetch_failed: GET http://down.example/: connection refused");
            assert_eq!(Fetch::get("nowhere").send().unwrap_err().code(), "fetch_failed");
        });
        assert_eq!(Fetch::get("http://up.example").send().unwrap_err().code(), "fetch_failed");
    }
}
