//! A call of a function: from its request to its sandbox, and its answer's way back.
//!
//! The function gets the request as it came, but for the part of the path that names it. Its answer streams back as
//! the function writes it. Whatever goes wrong before the answer's head is a problem; after it the connection
//! breaks off, so that half an answer is never taken for a whole one. But in HTTP/1.0, where an answer that does not say how
//! long it is ends with its connection: there is no telling.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wasmtime_wasi_http::WasiBody;

use super::allowance::Allowance;
use super::guard::{forbidden, unknown};
use super::problem::{Code, Problem};
use crate::access::Principal;
use crate::admission::Refusal;
use crate::function::{End, Function, NoAnswer, Revision, Routed, Ticket};
use crate::limits::{Exceeded, Limit};
use crate::meter::record::Outcome;
use crate::node::Node;
use crate::units::Size;

/// `ANY /fn/{tenant}/{function}/{*path}`
pub async fn call(State(node): State<Arc<Node>>, request: Request) -> Result<Response, Problem> {
    let started = Instant::now();
    let (tenant, name, _) = split(request.uri().path());
    let principal = request.extensions().get::<Principal>();
    let function = may_call(&node, principal, tenant, name, request.headers())?;
    let allowance = match Allowance::take(&node, &function, principal, started) {
        Ok(allowance) => allowance,
        Err(refusal) => {
            function.tally.begin();
            function.tally.end(Outcome::Refused, refusal.extensions().get().copied(), started.elapsed());
            return Ok(*refusal);
        }
    };
    let call = Call::new(node, function, started);
    let mut answer = call.run(request).await.into_response();
    allowance.tell(answer.headers_mut());
    Ok(answer)
}

/// The function that is meant, if whoever asks may call it. To those who may not, another tenant's functions are as ones
/// that are not there.
fn may_call(
    node: &Node,
    principal: Option<&Principal>,
    tenant: &str,
    name: &str,
    headers: &HeaderMap,
) -> Result<Arc<Function>, Problem> {
    let function = node.functions.find(tenant, name).filter(|_| node.is_active(tenant));
    if let Some(function) = function.as_ref().filter(|function| function.is_public()) {
        return Ok(Arc::clone(function));
    }
    let principal = principal.ok_or_else(|| unknown(headers))?;
    let is_theirs = principal.tenant.as_ref().is_none_or(|own| **own == *tenant);
    if !is_theirs {
        return Err(Problem::nothing_to_call(tenant, name));
    }
    if !principal.may_call(name) {
        return Err(forbidden(principal));
    }
    function.ok_or_else(|| Problem::nothing_to_call(tenant, name))
}

/// A call under way. Dropped before its end, it was its client that went away.
struct Call {
    node: Arc<Node>,
    function: Arc<Function>,
    started: Instant,
    outcome: Outcome,
    /// The problem that it is answered with, if it is.
    problem: Option<Code>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.function.tally.end(self.outcome, self.problem, self.started.elapsed());
        if self.outcome != Outcome::Answered {
            self.function.count_failure();
        }
    }
}

impl Call {
    fn new(node: Arc<Node>, function: Arc<Function>, started: Instant) -> Self {
        function.tally.begin();
        Self { node, function, started, outcome: Outcome::Cancelled, problem: None }
    }

    async fn run(mut self, request: Request) -> Result<Response, Problem> {
        let head_only = request.method() == Method::HEAD;
        match self.answer(request).await {
            Ok((response, sandbox)) => Ok(self.send(response, sandbox, head_only)),
            Err(problem) => {
                self.outcome = outcome(problem.code);
                self.problem = Some(problem.code);
                Err(problem)
            }
        }
    }

    /// The function's answer, up to its body, and the hold on the sandbox that still writes that.
    async fn answer(&self, request: Request) -> Result<(http::Response<WasiBody>, Hold), Problem> {
        let routed = self.function.route(self.function.count_call(), request.headers());
        let Some(Routed { revision, .. }) = &routed else {
            return Err(Problem::nothing_to_call(&self.function.tenant, &self.function.name));
        };
        let limits = &revision.config.limits;
        let met = |exceeded: Exceeded| {
            self.node.telemetry.limit(exceeded.limit);
            revision.log.note(revision.number, 0, format!("{}: {exceeded}", exceeded.limit.field()));
            exceeded
        };
        check_headers(&request, limits.header_bytes).map_err(&met).map_err(|exceeded| {
            // Here it is the client's doing.
            Problem::new(Code::HeadersTooLarge, exceeded.detail)
        })?;
        check_body(&request, limits.request_bytes).map_err(&met)?;
        let (request, overflow) = admit_body(request, limits.request_bytes.as_u64())?;
        let patience = revision.config.request_timeout;
        let permit = revision.gate.enter(&revision.tenant_gate, patience).await;
        let permit = permit.map_err(|refusal| refused(&self.node, revision, &refusal))?;
        let awake = revision.wake().await?;

        // From here on the sandbox's end is ours to cause: by dropping the guard.
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let answered = CancellationToken::new();
        let (told, end) = oneshot::channel();
        let pool = awake.pool();
        let ticket = Ticket {
            number: self.node.next_call(),
            patience,
            gone,
            answered: answered.clone(),
            ended: told,
            _permit: permit,
            _awake: awake,
        };
        let result = pool.call(request, ticket).await;
        if overflow.load(Ordering::Relaxed) {
            let most = limits.request_bytes;
            let detail = format!("the body is larger than {most}, the most for this function");
            return Err(met(Exceeded::new(Limit::RequestBytes, detail)).into());
        }
        let response = match result {
            Ok(response) => response,
            // The sandbox knows why it ended, and is on its way to its end now.
            Err(NoAnswer::Ended) => {
                drop(guard);
                return Err(ended(end.await.ok()));
            }
            Err(none) => return Err(none.into()),
        };
        if response.status().is_informational() {
            // It would be about the connection, which is not the function's.
            let detail = format!(
                "the function answered with status {}, which is not for it to give",
                response.status()
            );
            return Err(Problem::new(Code::FunctionFailed, detail));
        }
        let most = limits.response_bytes;
        let length = response.body().size_hint().lower();
        if length > most.as_u64() {
            let detail =
                format!("the function's answer has {length} bytes; the most for this function is {most}");
            return Err(met(Exceeded::new(Limit::ResponseBytes, detail)).into());
        }
        answered.cancel();
        Ok((response, Hold { guard, end, left: most.as_u64() }))
    }

    fn send(self, response: http::Response<WasiBody>, sandbox: Hold, head_only: bool) -> Response {
        let (mut parts, body) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        let length = content_length(&parts.headers);
        let Hold { guard, end, left } = sandbox;
        let mut answer = Answer { body, left, length, guard: Some(guard), end, call: self };
        // A server does not ask for a body that it will not send.
        let without = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parts.status);
        if head_only || without || length == Some(0) {
            answer.complete();
        }
        Response::from_parts(parts, Body::new(answer))
    }
}

/// What keeps a sandbox at its answer.
struct Hold {
    guard: DropGuard,
    end: oneshot::Receiver<End>,
    /// Bytes that the answer may have.
    left: u64,
}

fn outcome(code: Code) -> Outcome {
    match code {
        Code::FunctionFailed
        | Code::ResponseTooLarge
        | Code::MemoryLimit
        | Code::TableLimit
        | Code::InstanceLimit
        | Code::CpuLimit
        | Code::StackLimit
        | Code::HostMemoryLimit
        | Code::ResourceLimit
        | Code::HeaderLimit
        | Code::OutboundLimit => Outcome::Failed,
        Code::RequestTimeout | Code::InferenceTimeout => Outcome::TimedOut,
        Code::Unauthorized
        | Code::Forbidden
        | Code::TenantRequired
        | Code::TenantSuspended
        | Code::TooManyFailures
        | Code::RateLimited
        | Code::BudgetExhausted
        | Code::QuotaExceeded
        | Code::Conflict
        | Code::IdempotencyMismatch
        | Code::PreconditionFailed
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::InvalidName
        | Code::InvalidRequest
        | Code::UnsupportedMediaType
        | Code::TooLarge
        | Code::UploadTimeout
        | Code::HeadersTooLarge
        | Code::InvalidConfig
        | Code::InvalidComponent
        | Code::InvalidSignature
        | Code::PolicyViolation
        | Code::InvalidModel
        | Code::UnsupportedFormat
        | Code::ModelInUse
        | Code::FunctionOverloaded
        | Code::ServerOverloaded
        | Code::NodeMemory
        | Code::DeviceMemory
        | Code::TenantMemory
        | Code::TenantOverloaded
        | Code::QueueTimeout
        | Code::StartFailed
        | Code::StartTimeout
        | Code::PreparationTimeout
        | Code::PreparationMemory
        | Code::PreparationFailed
        | Code::ModelMemory
        | Code::OperatorCost
        | Code::StorageFull
        | Code::StorageUnavailable
        | Code::Stopping
        | Code::Internal => Outcome::Refused,
    }
}

fn refused(node: &Node, revision: &Revision, refusal: &Refusal) -> Problem {
    let function = &revision.function;
    let (code, detail) = match refusal {
        Refusal::QueueFull { running, waiting } => (
            Code::FunctionOverloaded,
            format!(
                "function `{function}` has {running} calls running and {waiting} waiting, the most it may"
            ),
        ),
        Refusal::TenantQueueFull { running, waiting } => {
            // Where none may wait, it is the number of those that run.
            let limit = if *waiting == 0 { Limit::Calls } else { Limit::QueuedCalls };
            node.telemetry.limit(limit);
            let detail = match *running {
                u32::MAX => format!("the tenant has {waiting} calls waiting, the most it may"),
                running => {
                    format!("the tenant has {running} calls running and {waiting} waiting, the most it may")
                }
            };
            revision.log.note(revision.number, 0, format!("{}: {detail}", limit.field()));
            (Code::TenantOverloaded, detail)
        }
        Refusal::TimedOut => (
            Code::FunctionOverloaded,
            format!(
                "the call waited {} for its turn at function `{function}`",
                humantime::format_duration(revision.config.request_timeout)
            ),
        ),
    };
    Problem::new(code, detail)
}

/// What the end of a sandbox without an answer is to the client.
fn ended(end: Option<End>) -> Problem {
    match end {
        Some(End::Exceeded(exceeded) | End::Returned(exceeded)) => exceeded.into(),
        Some(End::NoPlace) => NoAnswer::AllInUse.into(),
        Some(End::Failed(reason)) => {
            Problem::new(Code::FunctionFailed, format!("the function ended without an answer: {reason}"))
        }
        None => Problem::new(Code::FunctionFailed, "the function returned without giving an answer"),
    }
}

impl From<NoAnswer> for Problem {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::AllInUse => Self::new(Code::ServerOverloaded, none.to_string()),
            NoAnswer::Exceeded(exceeded) => exceeded.into(),
            NoAnswer::NoStart(_) => Self::new(Code::StartFailed, none.to_string()),
            NoAnswer::Ended => ended(None),
        }
    }
}

/// Counted as they go over the wire in HTTP/1. Source: RFC 9112, section 5.
fn check_headers(request: &Request, most: Size) -> Result<(), Exceeded> {
    let line = |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let bytes: usize = request.headers().iter().map(line).fold(0, usize::saturating_add);
    if bytes <= most.as_usize() {
        return Ok(());
    }
    let detail = format!("the headers have {bytes} bytes; the most for this function is {most}");
    Err(Exceeded::new(Limit::HeaderBytes, detail))
}

fn check_body(request: &Request, most: Size) -> Result<(), Exceeded> {
    let bytes = request.body().size_hint().lower();
    if bytes <= most.as_u64() {
        return Ok(());
    }
    let detail = format!("the body has {bytes} bytes; the most for this function is {most}");
    Err(Exceeded::new(Limit::RequestBytes, detail))
}

/// The request as the function sees it, and a flag that is set if its body grows beyond `most` bytes.
fn admit_body(request: Request, most: u64) -> Result<(http::Request<WasiBody>, Arc<AtomicBool>), Problem> {
    let (mut parts, body) = request.into_parts();
    parts.uri = inner_uri(&parts.uri)?;
    remove_hop_by_hop(&mut parts.headers);
    // HTTP/1.0 clients may leave it out; guests may not be given none.
    let host = parts.headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
    if host.to_str().is_err() {
        return Err(Problem::new(Code::InvalidRequest, "the Host header is not text"));
    }
    let overflow = Arc::new(AtomicBool::new(false));
    let body = Question { body, left: most, overflow: Arc::clone(&overflow) };
    Ok((http::Request::from_parts(parts, body.boxed_unsync()), overflow))
}

/// A call's path in its parts: tenant, function, and what the function sees, without the slash before it.
fn split(path: &str) -> (&str, &str, &str) {
    let mut parts = path.strip_prefix("/fn/").unwrap_or_default().splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

/// The part of the path after the function's name, with the query.
fn inner_uri(uri: &Uri) -> Result<Uri, Problem> {
    let (_, _, rest) = split(uri.path());
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
    call: Call,
}

impl Answer {
    /// The end was reached: what the guest does after it may run on, until its deadline.
    fn complete(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.disarm();
            self.call.outcome = Outcome::Answered;
        }
    }

    fn break_off(
        &mut self,
        outcome: Outcome,
        reason: String,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.guard = None;
        self.call.outcome = outcome;
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
                Ok(End::Failed(reason)) => return self.break_off(Outcome::Failed, reason),
                Ok(End::NoPlace) => {
                    return self.break_off(Outcome::Failed, "the machine had no place left".to_owned());
                }
                Ok(End::Exceeded(exceeded)) => {
                    let timed_out = matches!(exceeded.limit, Limit::RequestTime | Limit::InferenceTime);
                    let outcome = if timed_out { Outcome::TimedOut } else { Outcome::Failed };
                    return self.break_off(outcome, exceeded.detail);
                }
                Ok(End::Returned(_)) | Err(_) if self.length.is_some_and(|left| left > 0) => {
                    let reason = "the answer is shorter than it said".to_owned();
                    return self.break_off(Outcome::Failed, reason);
                }
                Ok(End::Returned(_)) | Err(_) => {
                    self.complete();
                    return Poll::Ready(None);
                }
            },
            Some(Err(error)) => return self.break_off(Outcome::Failed, format!("{error:?}")),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(bytes) else {
            self.call.node.telemetry.limit(Limit::ResponseBytes);
            let reason = "the answer is larger than the function may send".to_owned();
            return self.break_off(Outcome::Failed, reason);
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
