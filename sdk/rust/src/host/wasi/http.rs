//! Bodies in and out, and requests of the function's own, by `wasi:http` 0.2.

use std::ops::ControlFlow::{self, Break, Continue};
use std::task::{Context, Poll};
use std::time::Duration;

use super::ready::Readiness;
use crate::Error;
use crate::bindings::wasi::http::outgoing_handler::handle;
use crate::bindings::wasi::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingRequest, IncomingResponse, Method,
    OutgoingBody, OutgoingRequest, RequestOptions, Scheme, http_error_code,
};
use crate::bindings::wasi::io::streams::{InputStream, OutputStream, StreamError};
use crate::fetch::Fetch;
use crate::host::Answered;
use crate::response::Body as Outgoing;

/// The most bytes asked of the host in one read of a body.
const READ_BYTES: u64 = 64 * 1024;

/// A request whose body has not been asked for.
#[derive(Debug)]
pub struct Incoming(pub IncomingRequest);

impl Incoming {
    /// Method in capitals, path with query, headers.
    pub fn head(&self) -> (String, String, Vec<(String, Vec<u8>)>) {
        let path = self.0.path_with_query().unwrap_or_default();
        (name_of(self.0.method()), path, self.0.headers().entries())
    }

    /// The body, or `None` if it was taken before.
    pub fn into_body(self) -> Option<Body> {
        let body = self.0.consume().ok()?;
        Body::of(body, Head::Request(self.0))
    }
}

/// A body that comes in. Fields drop in order: what waits, the stream, the body, and last what it is of.
#[derive(Debug)]
pub struct Body {
    readiness: Readiness,
    stream: Option<InputStream>,
    _body: IncomingBody,
    _head: Head,
}

#[derive(Debug)]
enum Head {
    Request(#[expect(dead_code, reason = "held for as long as its body")] IncomingRequest),
    Answer(#[expect(dead_code, reason = "held for as long as its body")] IncomingResponse),
}

impl Body {
    fn of(body: IncomingBody, head: Head) -> Option<Self> {
        let stream = body.stream().ok()?;
        Some(Self { readiness: Readiness::default(), stream: Some(stream), _body: body, _head: head })
    }

    /// The next part, of at most 64 KiB, once there is one. After an error, and after the end, there are no more.
    pub fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        let read = self.stream.as_ref()?.blocking_read(READ_BYTES);
        self.part(read)
    }

    /// The same for a future.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, Error>>> {
        loop {
            let Some(stream) = &self.stream else { return Poll::Ready(None) };
            match stream.read(READ_BYTES) {
                Ok(part) if part.is_empty() => {
                    if self.readiness.poll(cx, || stream.subscribe()).is_pending() {
                        return Poll::Pending;
                    }
                }
                read => return Poll::Ready(self.part(read)),
            }
        }
    }

    fn part(&mut self, read: Result<Vec<u8>, StreamError>) -> Option<Result<Vec<u8>, Error>> {
        let error = match read {
            Ok(part) => return Some(Ok(part)),
            Err(error) => error,
        };
        self.readiness = Readiness::default();
        self.stream = None;
        let StreamError::LastOperationFailed(error) = error else { return None };
        let code = http_error_code(&error);
        Some(Err(match (&self._head, code) {
            (Head::Request(_), Some(ErrorCode::HttpRequestBodySize(_))) => {
                Error::new(413, "body_too_large", "the request's body is larger than the host takes")
            }
            (Head::Request(_), _) => Error::new(
                400,
                "unreadable_body",
                format!("the body ended early: {}", error.to_debug_string()),
            ),
            (Head::Answer(_), _) => Error::new(
                502,
                "fetch_failed",
                format!("the upstream's body ended early: {}", error.to_debug_string()),
            ),
        }))
    }
}

/// A request that is on its way.
#[derive(Debug)]
pub struct Fetching {
    readiness: Readiness,
    answer: FutureIncomingResponse,
}

/// Sends a request, its body included. The error says what is wrong with it, or why it could not be sent.
pub fn fetch(fetch: Fetch) -> Result<Fetching, String> {
    let fields = Fields::new();
    for (name, value) in &fetch.headers {
        fields.append(name, value.as_bytes()).map_err(|error| format!("header `{name}`: {error:?}"))?;
    }
    let request = OutgoingRequest::new(fields);
    let target = &fetch.target;
    let scheme = match &*target.scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_string()),
    };
    request.set_method(&method_of(&fetch.method)).map_err(|()| format!("the method {:?}", fetch.method))?;
    request.set_scheme(Some(&scheme)).map_err(|()| format!("the scheme {:?}", target.scheme))?;
    request
        .set_authority(Some(&target.authority))
        .map_err(|()| format!("the host {:?}", target.authority))?;
    request.set_path_with_query(Some(&target.path)).map_err(|()| format!("the path {:?}", target.path))?;
    let options = fetch.timeout.map(options);
    let body = request.body().map_err(|()| "its body was taken".to_string())?;
    let answer = handle(request, options).map_err(|error| describe(&error))?;
    // An upstream may answer, or hang up, before it has read all: its answer says more than that the rest was not taken.
    if let Err(error) = send(body, fetch.body) {
        crate::log::warn!("{error}");
    }
    Ok(Fetching { readiness: Readiness::default(), answer })
}

impl Fetching {
    pub fn wait(mut self) -> Result<Answered, String> {
        loop {
            if let Some(answer) = self.take() {
                return answer;
            }
            self.answer.subscribe().block();
        }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, String>> {
        loop {
            if let Some(answer) = self.take() {
                return Poll::Ready(answer);
            }
            let answer = &self.answer;
            if self.readiness.poll(cx, || answer.subscribe()).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn take(&mut self) -> Option<Result<Answered, String>> {
        let taken = || "the answer was taken before".to_string();
        let answer = self.answer.get()?;
        Some(answer.map_err(|()| taken()).and_then(|answer| {
            let answer = answer.map_err(|error| describe(&error))?;
            let (status, headers) = (answer.status(), answer.headers().entries());
            let body = answer.consume().ok().and_then(|body| Body::of(body, Head::Answer(answer)));
            Ok((status, headers, body.ok_or_else(taken)?))
        }))
    }
}

/// The error's name in `wasi:http`, with what it carries.
fn describe(error: &ErrorCode) -> String {
    let text = format!("{error:?}");
    text.strip_prefix("ErrorCode::").unwrap_or(&text).to_string()
}

fn options(timeout: Duration) -> RequestOptions {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let options = RequestOptions::new();
    // A host that does not offer one of them has its own.
    let _ = options.set_connect_timeout(Some(nanos));
    let _ = options.set_first_byte_timeout(Some(nanos));
    let _ = options.set_between_bytes_timeout(Some(nanos));
    options
}

fn method_of(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_string()),
    }
}

fn name_of(method: Method) -> String {
    let name = match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(name) => return name,
    };
    name.to_string()
}

/// Sends a body: bytes as fast as they are taken, parts each as soon as it is made. A part that is an error ends it unfinished, so
/// that the receiver sees that something is missing.
pub fn send(body: OutgoingBody, outgoing: Outgoing) -> Result<(), Error> {
    if write_parts(&body, outgoing.into_parts())?.is_continue() {
        finish(body);
    }
    Ok(())
}

fn finish(body: OutgoingBody) {
    // It fails where the receiver has gone: there is nobody left to tell.
    let _ = OutgoingBody::finish(body, None);
}

/// Breaks where the receiver has gone.
fn write_parts(
    body: &OutgoingBody,
    parts: impl Iterator<Item = Result<Vec<u8>, Error>>,
) -> Result<ControlFlow<()>, Error> {
    let Ok(stream) = body.write() else { return Ok(Break(())) };
    for part in parts {
        if write(&stream, &part?).is_err() {
            return Ok(Break(()));
        }
    }
    Ok(Continue(()))
}

/// Writes as much at a time as the host has room for, waits when it has none, and is done when it has taken all.
fn write(stream: &OutputStream, mut bytes: &[u8]) -> Result<(), StreamError> {
    while !bytes.is_empty() {
        let room = stream.check_write()?;
        if room == 0 {
            stream.subscribe().block();
            continue;
        }
        let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        stream.write(now)?;
        bytes = later;
    }
    stream.blocking_flush()
}
