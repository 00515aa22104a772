//! A call of a function: from its request to its sandbox, and its answer's way back.
//!
//! The function gets the request as it came, but for the part of the path that names it. Its answer streams back as
//! the function writes it. Whatever goes wrong before the answer's head is a problem; after it the connection
//! breaks off, so that half an answer is never taken for a whole one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::handler::{ExpirationError, InstantiationError};

use super::problem::{Code, Problem};
use crate::admission::Refusal;
use crate::function::{End, Function, NoSandbox, Revision, Ticket, first_line};
use crate::node::Node;
use crate::telemetry::Outcome;

/// The segments of a call's path.
type Segments = Path<Vec<(String, String)>>;

/// `ANY /fn/{tenant}/{function}/{*path}`
pub async fn call(
    State(node): State<Arc<Node>>,
    Path(segments): Segments,
    request: Request,
) -> Result<Response, Problem> {
    let started = Instant::now();
    let segment =
        |wanted: &str| segments.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let (tenant, name) = (segment("tenant").unwrap_or_default(), segment("function").unwrap_or_default());
    let function = node.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))?;
    let call = Call { node: &node, function: &function, outcome: Outcome::Cancelled, started };
    call.run(request).await
}

/// A call under way. Dropped before its end, it was its client that went away.
struct Call<'a> {
    node: &'a Node,
    function: &'a Function,
    outcome: Outcome,
    started: Instant,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.node.telemetry.call(self.outcome, self.started.elapsed());
        if self.outcome != Outcome::Answered {
            self.function.count_failure();
        }
    }
}

impl Call<'_> {
    async fn run(mut self, request: Request) -> Result<Response, Problem> {
        let answer = self.answer(request).await;
        self.outcome = match &answer {
            Ok(_) => Outcome::Answered,
            Err(problem) => outcome(problem.code),
        };
        answer
    }

    async fn answer(&self, request: Request) -> Result<Response, Problem> {
        let revision = self
            .function
            .route(self.function.count_call())
            .ok_or_else(|| Problem::no_function(&self.function.name))?;
        let limits = &revision.config.limits;
        let (request, overflow) = admit_body(request, limits.request_bytes.as_u64())?;
        let patience = revision.config.request_timeout;
        let permit = revision.gate.enter(patience).await.map_err(|refusal| refused(&revision, &refusal))?;
        let awake = revision.wake().await?;

        // From here on the sandbox's end is ours to cause: by dropping the guard.
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let answered = CancellationToken::new();
        let (told, end) = oneshot::channel();
        let handler = awake.handler().clone();
        let ticket = Ticket {
            number: self.node.next_call(),
            deadline: Instant::now() + patience,
            gone,
            answered: answered.clone(),
            ended: told,
            _permit: permit,
            _awake: awake,
        };
        let result = handler.handle(ticket, request).await;
        if overflow.load(Ordering::Relaxed) {
            let most = limits.request_bytes;
            return Err(Problem::new(
                Code::TooLarge,
                format!("the body is larger than {most}, the most for this function"),
            ));
        }
        let response = match result {
            Ok(response) => response,
            Err(error) => match failed(&error, patience) {
                Some(problem) => return Err(problem),
                // The sandbox knows why it ended, and is on its way to its end now.
                None => {
                    drop(guard);
                    return Err(ended(end.await.ok(), patience));
                }
            },
        };
        let most = limits.response_bytes;
        let length = response.body().size_hint().lower();
        if length > most.as_u64() {
            return Err(Problem::new(
                Code::ResponseTooLarge,
                format!("the function's answer has {length} bytes; the most for this function is {most}"),
            ));
        }
        answered.cancel();
        let (mut parts, body) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        let body = Answer {
            body,
            left: most.as_u64(),
            length: content_length(&parts.headers),
            guard: Some(guard),
            end,
        };
        Ok(Response::from_parts(parts, Body::new(body)))
    }
}

fn outcome(code: Code) -> Outcome {
    match code {
        Code::FunctionFailed | Code::ResponseTooLarge => Outcome::Failed,
        Code::RequestTimeout => Outcome::TimedOut,
        Code::NotFound
        | Code::MethodNotAllowed
        | Code::InvalidName
        | Code::InvalidRequest
        | Code::UnsupportedMediaType
        | Code::TooLarge
        | Code::InvalidConfig
        | Code::InvalidComponent
        | Code::InvalidModel
        | Code::UnsupportedFormat
        | Code::ModelInUse
        | Code::FunctionOverloaded
        | Code::ServerOverloaded
        | Code::StartFailed
        | Code::StartTimeout
        | Code::Internal => Outcome::Refused,
    }
}

fn refused(revision: &Revision, refusal: &Refusal) -> Problem {
    let detail = match refusal {
        Refusal::QueueFull { running, waiting } => {
            format!(
                "function `{}` has {running} calls running and {waiting} waiting, the most it may",
                revision.function
            )
        }
        Refusal::TimedOut => format!(
            "the call waited {} for its turn at function `{}`",
            humantime::format_duration(revision.config.request_timeout),
            revision.function
        ),
    };
    Problem::new(Code::FunctionOverloaded, detail)
}

/// What the end of a sandbox without an answer is to the client.
fn ended(end: Option<End>, patience: Duration) -> Problem {
    match end {
        Some(End::TimedOut) => {
            let patience = humantime::format_duration(patience);
            Problem::new(Code::RequestTimeout, format!("the function had no answer within {patience}"))
        }
        Some(End::Failed(reason)) => {
            Problem::new(Code::FunctionFailed, format!("the function ended without an answer: {reason}"))
        }
        None => Problem::new(Code::FunctionFailed, "the function returned without giving an answer"),
    }
}

/// What a call's failure is to the client; `None` when the sandbox's end tells more.
fn failed(error: &wasmtime::Error, patience: Duration) -> Option<Problem> {
    if error.is::<ExpirationError>() {
        return Some(ended(Some(End::TimedOut), patience));
    }
    if let Some(instantiation) = error.downcast_ref::<InstantiationError<Ticket>>() {
        let problem = match instantiation.error.downcast_ref::<NoSandbox>() {
            Some(NoSandbox::AllInUse) => {
                Problem::new(Code::ServerOverloaded, NoSandbox::AllInUse.to_string())
            }
            Some(slow @ NoSandbox::Slow(_)) => Problem::new(Code::StartTimeout, slow.to_string()),
            None => Problem::new(
                Code::StartFailed,
                format!("the function cannot start: {}", first_line(&instantiation.error)),
            ),
        };
        return Some(problem);
    }
    None
}

/// The request as the function sees it, and a flag that is set if its body grows beyond `most` bytes.
fn admit_body(request: Request, most: u64) -> Result<(http::Request<WasiBody>, Arc<AtomicBool>), Problem> {
    let (mut parts, body) = request.into_parts();
    let length = body.size_hint().lower();
    if length > most {
        return Err(Problem::new(
            Code::TooLarge,
            format!(
                "the body has {length} bytes; the most for this function is {}",
                crate::units::Size::bytes(most)
            ),
        ));
    }
    parts.uri = inner_uri(&parts.uri)?;
    remove_hop_by_hop(&mut parts.headers);
    // HTTP/1.0 clients may leave it out; guests may not be given none.
    parts.headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
    let overflow = Arc::new(AtomicBool::new(false));
    let body = Question { body, left: most, overflow: Arc::clone(&overflow) };
    Ok((http::Request::from_parts(parts, body.boxed_unsync()), overflow))
}

/// The part of the path after the function's name, with the query.
fn inner_uri(uri: &Uri) -> Result<Uri, Problem> {
    let rest = uri.path().splitn(5, '/').nth(4).unwrap_or_default();
    let path = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    let path: PathAndQuery = path.parse().map_err(|_| {
        Problem::new(Code::InvalidRequest, "the path after the function's name is not understood")
    })?;
    Ok(Uri::from(path))
}

/// Headers that are about one connection, not about the message. Source: RFC 9110, section 7.6.1.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

/// A request's body on its way to the guest, up to its limit.
struct Question {
    body: Body,
    left: u64,
    overflow: Arc<AtomicBool>,
}

impl HttpBody for Question {
    type Data = Bytes;
    type Error = wasmtime_wasi_http::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some(Err(wasmtime_wasi_http::Error::ConnectionTerminated))),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                self.overflow.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Err(wasmtime_wasi_http::Error::HttpRequestBodySize(None))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body on its way to the client, up to its limit. Dropped before its end, the client has gone.
struct Answer {
    body: WasiBody,
    left: u64,
    /// What is still to come, where the answer said how long it is.
    length: Option<u64>,
    guard: Option<DropGuard>,
    end: oneshot::Receiver<End>,
}

impl Answer {
    /// The end was reached: what the guest does after it may run on, until its deadline.
    fn complete(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
    }

    fn break_off(&mut self, reason: String) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.guard = None;
        Poll::Ready(Some(Err(std::io::Error::other(reason))))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            // A sandbox says that it failed before its body closes, so this cannot miss it.
            None => match self.end.try_recv() {
                Ok(End::Failed(reason)) => return self.break_off(reason),
                Ok(End::TimedOut) => return self.break_off("its time was up".to_owned()),
                Err(_) => {
                    self.complete();
                    return Poll::Ready(None);
                }
            },
            Some(Err(error)) => return self.break_off(format!("{error:?}")),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(bytes) else {
            return self.break_off("the answer is larger than the function may send".to_owned());
        };
        self.left = left;
        self.length = self.length.map(|length| length.saturating_sub(bytes));
        // Whoever sends a body of known length need not ask for more when it is all there.
        if self.length == Some(0) {
            self.complete();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A server need not poll a body that says it has ended.
        if self.body.is_end_stream() {
            self.complete();
        }
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
