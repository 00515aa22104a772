//! A call of a function: from its request to its sandbox, and its answer's way back.
//!
//! The function gets the request as it came, but for the part of the path that names it. Its answer streams back as
//! the function writes it. Whatever goes wrong before the answer's head is a problem; after it the connection
//! breaks off, so that half an answer is never taken for a whole one. But in HTTP/1.0, where an answer that does not say how
//! long it is ends with its connection: there is no telling.

mod question;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wasmtime_wasi_http::WasiBody;

use self::question::{admit_body, check_body, check_headers, remove_hop_by_hop, split};
use super::allowance::Allowance;
use super::guard::{Peer, forbidden, unknown};
use super::problem::{Code, Problem};
use crate::access::Principal;
use crate::admission::Refusal;
use crate::function::{End, Function, NoAnswer, Revision, Routed, Ticket, Use, nanos};
use crate::limits::{Exceeded, Limit};
use crate::meter::bill::{Amounts, Bill};
use crate::meter::record::{Outcome, Record};
use crate::node::Node;
use crate::store::StoreError;
use crate::trace::current::{self, within};
use crate::trace::recording::What;
use crate::trace::{Recording, context};

/// Says with an answer which usage record its call has.
const CALL: HeaderName = HeaderName::from_static("weir-call");
/// The route as traces name it.
const ROUTE: &str = "/fn/{tenant}/{function}/{*path}";

/// `ANY /fn/{tenant}/{function}/{*path}`
pub async fn call(State(node): State<Arc<Node>>, mut request: Request) -> Result<Response, Problem> {
    let started = Instant::now();
    let (tenant, name, _) = split(request.uri().path());
    let principal = request.extensions().get::<Principal>();
    let function = may_call(&node, principal, tenant, name, request.headers())?;
    let key = principal.and_then(|principal| principal.key.clone());
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let context = node.tracer.context(request.headers());
    let trace = node.tracer.record(context.clone(), started, &request, (ROUTE, peer));
    let mut call = Call::new(Arc::clone(&node), Arc::clone(&function), key, trace, started);
    let admitted = current::during(context.link(), || {
        node.meter.admit().map_err(|error| Box::new(Problem::from(error).into_response()))?;
        Allowance::take(&node, &function, principal, started)
    });
    let allowance = match admitted {
        Ok(allowance) => allowance,
        Err(refusal) => {
            if let Some(code) = refusal.extensions().get::<Code>() {
                call.refused(*code);
            }
            return Ok(*refusal);
        }
    };
    let id = node.meter.is_on().then(|| node.meter.next_id());
    call.id.clone_from(&id);
    // The guest's own spans are beneath the call's.
    context.put(request.headers_mut());
    let mut answer = within(&context, call.run(request)).await.into_response();
    allowance.tell(answer.headers_mut());
    if let Some(id) = id.and_then(|id| HeaderValue::from_maybe_shared(Bytes::from(id)).ok()) {
        answer.headers_mut().insert(CALL, id);
    }
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
    /// The id of the key that it came with.
    key: Option<Arc<str>>,
    /// Its record's.
    id: Option<String>,
    started: Instant,
    /// How long it took to the head of its answer, or to its problem.
    head: Option<Duration>,
    outcome: Outcome,
    /// The problem that is its answer.
    problem: Option<Code>,
    /// The problem or the limit that it ended with.
    code: Option<&'static str>,
    status: Option<StatusCode>,
    /// Its tenant's budget and the rates have let it through.
    begun: bool,
    /// Bytes of its answer's body, so far.
    answered: u64,
    /// From when it has its revision until its record is written.
    bill: Option<Arc<Bill>>,
    /// Which trace it is part of, and what is collected of it until it ends.
    trace: Recording,
}

impl Drop for Call {
    fn drop(&mut self) {
        // Nobody is there to be told that it cannot be written now.
        let _ = current::during(self.trace.context.link(), || self.record());
        let took = self.head.unwrap_or_else(|| self.started.elapsed());
        self.function.tally.end(self.outcome, self.problem, took);
        if self.begun && self.outcome != Outcome::Answered {
            self.function.count_failure();
        }
    }
}

impl Call {
    fn new(
        node: Arc<Node>,
        function: Arc<Function>,
        key: Option<Arc<str>>,
        trace: Recording,
        started: Instant,
    ) -> Self {
        function.tally.begin();
        Self {
            node,
            function,
            key,
            id: None,
            started,
            head: None,
            outcome: Outcome::Cancelled,
            problem: None,
            code: None,
            status: None,
            begun: false,
            answered: 0,
            bill: None,
            trace,
        }
    }

    /// It is answered with a problem.
    fn refused(&mut self, code: Code) {
        (self.outcome, self.problem) = (code.outcome(), Some(code));
        (self.code, self.status) = (Some(code.name()), Some(code.status()));
    }

    /// Writes the call's record, as it ends now, and has its trace sent with it. What it uses after that is in another record.
    ///
    /// # Errors
    /// When the disk does not take it.
    fn record(&mut self) -> Result<(), StoreError> {
        let bill = self.bill.take();
        if bill.is_none() && !self.trace.is_on() {
            return Ok(());
        }
        let mut record = Record {
            id: self.id.take().unwrap_or_default(),
            outcome: self.outcome,
            code: self.code.map(Arc::from),
            status: self.status.map_or(0, |status| status.as_u16().into()),
            calls: 1,
            response_bytes: self.answered,
            trace: self.trace.context.sampled.then(|| context::text(&self.trace.context.trace).into()),
            ..Record::default()
        };
        match &bill {
            Some(bill) => bill.take(&mut record),
            // It has not come to its revision, or nothing is metered: it leaves no record.
            None => {
                record.id.clear();
                record.tenant = Arc::clone(&self.function.tenant);
                record.function = Some(Arc::clone(&self.function.name));
            }
        }
        record.wall_ns = nanos(self.started.elapsed());
        let waited = [record.held_ns, record.startup_ns, record.queue_ns, record.inference_ns];
        record.guest_ns = waited.iter().fold(record.wall_ns, |left, waited| left.saturating_sub(*waited));
        let written = match bill {
            Some(_) => self.node.meter.record(&mut record),
            None => Ok(()),
        };
        self.trace.end(record);
        written
    }

    fn spent(&self, write: impl FnOnce(&mut Amounts)) {
        if let Some(bill) = &self.bill {
            bill.add(write);
        }
    }

    async fn run(mut self, request: Request) -> Result<Response, Problem> {
        self.begun = true;
        let head_only = request.method() == Method::HEAD;
        let answer = self.answer(request).await;
        self.head = Some(self.started.elapsed());
        match answer {
            Ok((response, sandbox)) => self.send(response, sandbox, head_only),
            Err(problem) => {
                self.refused(problem.code);
                Err(problem)
            }
        }
    }

    /// The function's answer, up to its body, and the hold on the sandbox that still writes that.
    async fn answer(&mut self, request: Request) -> Result<(http::Response<WasiBody>, Hold), Problem> {
        let routed = self.function.route(self.function.count_call(), request.headers());
        let Some(Routed { revision, .. }) = &routed else {
            return Err(Problem::nothing_to_call(&self.function.tenant, &self.function.name));
        };
        let bill = self
            .node
            .meter
            .is_on()
            .then(|| Bill::open(self.key.clone(), Arc::clone(&revision.rest), self.trace.clone()));
        self.bill = bill.clone();
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
        let (request, overflow) = admit_body(request, limits.request_bytes.as_u64(), bill.clone())?;
        let patience = revision.config.request_timeout;
        let asked = Instant::now();
        let permit = revision.gate.enter(&revision.tenant_gate, patience).await;
        let waking = Instant::now();
        self.spent(|amounts| amounts.held_ns += nanos(waking - asked));
        self.trace.waited(asked, waking, || What::Held);
        let permit = permit.map_err(|refusal| refused(&self.node, revision, &refusal))?;
        let awake = revision.wake().await;
        let woken = Instant::now();
        let cold = awake.as_ref().ok().and_then(Use::cold_code);
        self.spent(|amounts| {
            amounts.startup_ns += nanos(woken - waking);
            if let Some(took) = cold {
                (amounts.cold_starts, amounts.cold_code_ns) = (1, took);
            }
        });
        self.trace.waited(waking, woken, || What::Startup);
        if let Some(took) = cold {
            self.trace.waited(waking, waking + Duration::from_nanos(took), || What::Code);
        }
        let awake = awake?;

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
            bill,
            trace: self.trace.clone(),
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

    fn send(
        mut self,
        response: http::Response<WasiBody>,
        sandbox: Hold,
        head_only: bool,
    ) -> Result<Response, Problem> {
        let (mut parts, body) = response.into_parts();
        self.status = Some(parts.status);
        remove_hop_by_hop(&mut parts.headers);
        let length = content_length(&parts.headers);
        let Hold { guard, end, left } = sandbox;
        let mut answer = Answer { body, left, length, guard: Some(guard), end, call: self };
        // A server does not ask for a body that it will not send.
        let without = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parts.status);
        if head_only || without || length == Some(0) || answer.body.is_end_stream() {
            answer.complete()?;
        }
        Ok(Response::from_parts(parts, Body::new(answer)))
    }
}

/// What keeps a sandbox at its answer.
struct Hold {
    guard: DropGuard,
    end: oneshot::Receiver<End>,
    /// Bytes that the answer may have.
    left: u64,
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
    /// The end was reached: what the guest does after it may run on, until its deadline. The call's record is written before
    /// the client can know of the end.
    ///
    /// # Errors
    /// When the disk does not take the record.
    fn complete(&mut self) -> Result<(), StoreError> {
        let Some(guard) = self.guard.take() else { return Ok(()) };
        guard.disarm();
        self.call.outcome = Outcome::Answered;
        self.call.record()
    }

    /// The last frame of the answer, or its end.
    fn last(&mut self, frame: Option<Frame<Bytes>>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.complete() {
            Ok(()) => Poll::Ready(frame.map(Ok)),
            Err(error) => Poll::Ready(Some(Err(std::io::Error::other(error.to_string())))),
        }
    }

    fn failed(&mut self, reason: String) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.break_off(Outcome::Failed, Code::FunctionFailed.name(), reason)
    }

    fn break_off(
        &mut self,
        outcome: Outcome,
        code: &'static str,
        reason: String,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.guard = None;
        (self.call.outcome, self.call.code) = (outcome, Some(code));
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
        current::during(self.call.trace.context.link(), || self.as_mut().poll(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Answer {
    /// The next frame.
    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            // A sandbox says that it failed before its body closes, so this cannot miss it.
            None => match self.end.try_recv() {
                Ok(End::Failed(reason)) => return self.failed(reason),
                Ok(End::NoPlace) => {
                    let reason = "the machine had no place left".to_owned();
                    return self.break_off(Outcome::Failed, Code::ServerOverloaded.name(), reason);
                }
                Ok(End::Exceeded(exceeded)) => {
                    let timed_out = matches!(exceeded.limit, Limit::RequestTime | Limit::InferenceTime);
                    let outcome = if timed_out { Outcome::TimedOut } else { Outcome::Failed };
                    return self.break_off(outcome, exceeded.limit.field(), exceeded.detail);
                }
                Ok(End::Returned(_)) | Err(_) if self.length.is_some_and(|left| left > 0) => {
                    return self.failed("the answer is shorter than it said".to_owned());
                }
                Ok(End::Returned(_)) | Err(_) => return self.last(None),
            },
            Some(Err(error)) => return self.failed(format!("{error:?}")),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(bytes) else {
            self.call.node.telemetry.limit(Limit::ResponseBytes);
            let reason = "the answer is larger than the function may send".to_owned();
            return self.break_off(Outcome::Failed, Limit::ResponseBytes.field(), reason);
        };
        self.left = left;
        self.call.answered = self.call.answered.saturating_add(bytes);
        self.length = self.length.map(|length| length.saturating_sub(bytes));
        // Whoever sends a body of known length, or one that says it has ended, need not ask for more.
        if self.length == Some(0) || self.body.is_end_stream() {
            return self.last(Some(frame));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A server need not poll a body that says it has ended.
        if self.body.is_end_stream() {
            let _ = self.complete();
        }
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
