//! A call's trace as OTLP has it: one server span for the call, and the spans of its parts beneath it.
//!
//! It is made off the call's path, when the trace is about to be sent. The billing figures are the usage record's own, so a
//! line of the bill and its trace say the same numbers. What may hold secrets is left out: queries, headers, and the paths
//! of requests that guests send.

use std::time::{Duration, UNIX_EPOCH};

use http::{Method, Version};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link as OtlpLink, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span as OtlpSpan, Status};
use tokio::time::Instant;

use super::recording::{CallTrace, Inference, Line, Outgoing, Parts, Recorded, Request, Span, What};
use super::value::{boolean, number, text};
use super::{Context, Link, ids, names};
use crate::meter::record::{Outcome, Record, Use};

/// Flags of a span: whether it is known if its parent is another process's, and whether it is. Source: OTLP's `SpanFlags`.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Adds the spans of a call.
pub fn of(call: &CallTrace, spans: &mut Vec<OtlpSpan>) {
    let CallTrace { recorded, record } = call;
    let parts = recorded.take();
    let within = Within { recorded };
    // Code is mapped while the revision wakes.
    let startup = parts.spans.iter().find(|span| matches!(span.what, What::Startup)).map(|span| span.id);
    for span in &parts.spans {
        let parent = startup.filter(|_| matches!(span.what, What::Code));
        within.add(span, parent.unwrap_or(recorded.context.span), spans);
    }
    spans.push(within.server(record, parts));
}

/// What spans of one call have in common.
struct Within<'a> {
    recorded: &'a Recorded,
}

impl Within<'_> {
    /// Nanoseconds since 1970.
    fn at(&self, instant: Instant) -> u64 {
        self.after(instant.saturating_duration_since(self.recorded.started))
    }

    fn after(&self, offset: Duration) -> u64 {
        let wall = self.recorded.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from((wall + offset).as_nanos()).unwrap_or(u64::MAX)
    }

    fn span(&self, id: [u8; 8], parent: [u8; 8], times: (u64, u64)) -> OtlpSpan {
        let Context { trace, state, .. } = &self.recorded.context;
        OtlpSpan {
            trace_id: trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.to_vec(),
            trace_state: state.as_ref().and_then(|state| state.to_str().ok()).unwrap_or_default().to_owned(),
            flags: 1 | KNOWS_REMOTE,
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: times.0,
            end_time_unix_nano: times.1,
            ..OtlpSpan::default()
        }
    }

    /// The call's own.
    fn server(&self, record: &Record, parts: Parts) -> OtlpSpan {
        let Context { span, parent, .. } = self.recorded.context;
        let times = (self.after(Duration::ZERO), self.after(Duration::from_nanos(record.wall_ns)));
        let mut server = self.span(span, parent.unwrap_or_default(), times);
        match parent {
            Some(_) => server.flags |= IS_REMOTE,
            None => server.parent_span_id.clear(),
        }
        server.kind = SpanKind::Server.into();
        server.attributes = Vec::with_capacity(48);
        let attributes = &mut server.attributes;
        match &parts.request {
            Some(request) => {
                server.name = format!("{} {}", method(&request.method), request.route);
                of_request(request, attributes);
            }
            None => names::SCOPE.clone_into(&mut server.name),
        }
        of_record(record, attributes);
        if parts.dropped_spans > 0 {
            attributes.push(number(names::DROPPED_SPANS, parts.dropped_spans.into()));
        }
        if let Some(error) = error(record) {
            attributes.push(text(names::ERROR_TYPE, error));
            server.status = Some(failed());
        }
        server.dropped_events_count = parts.dropped_lines;
        server.events = parts.lines.into_iter().map(|line| self.event(line)).collect();
        server
    }

    fn event(&self, line: Line) -> Event {
        let Line { at, stream, text: said } = line;
        let attributes = vec![text(names::LOG_STREAM, stream), text(names::LOG_TEXT, said)];
        let (time_unix_nano, name) = (self.at(at), names::EVENT_LOG.to_owned());
        Event { time_unix_nano, name, attributes, dropped_attributes_count: 0 }
    }

    /// A part of the call.
    fn add(&self, part: &Span, parent: [u8; 8], spans: &mut Vec<OtlpSpan>) {
        let times = (self.at(part.from), self.at(part.to));
        let mut span = self.span(part.id, parent, times);
        match &part.what {
            What::Held => names::SPAN_HELD.clone_into(&mut span.name),
            What::Startup => names::SPAN_STARTUP.clone_into(&mut span.name),
            What::Code => names::SPAN_CODE.clone_into(&mut span.name),
            What::Sandbox => names::SPAN_SANDBOX.clone_into(&mut span.name),
            What::Load { model, device } => {
                span.name = named(names::SPAN_LOAD, model);
                span.attributes = vec![text(names::MODEL, &**model), text(names::DEVICE, &**device)];
            }
            What::Inference(inference) => {
                // It may have waited again later, for others' turns: that is in the figures, not in the picture.
                let ran = times.0.saturating_add(inference.queue_ns).min(times.1);
                if inference.queue_ns > 0 {
                    let mut queue = self.span(ids::span(), parent, (times.0, ran));
                    queue.name = named(names::SPAN_QUEUE, &inference.device);
                    queue.attributes = vec![text(names::DEVICE, &*inference.device)];
                    spans.push(queue);
                }
                span.start_time_unix_nano = ran;
                of_inference(inference, &mut span);
            }
            What::Outgoing(outgoing) => of_outgoing(outgoing, &mut span),
        }
        spans.push(span);
    }
}

/// A span's name, with what it is of.
fn named(name: &str, of: &str) -> String {
    if of.is_empty() { name.to_owned() } else { format!("{name} {of}") }
}

fn failed() -> Status {
    Status { code: StatusCode::Error.into(), message: String::new() }
}

/// A method as a name: there are few, whatever clients write. Source: the conventions for HTTP spans.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        "OPTIONS" => "OPTIONS",
        "TRACE" => "TRACE",
        "PATCH" => "PATCH",
        _ => "HTTP",
    }
}

fn of_method(asked: &Method, attributes: &mut Vec<KeyValue>) {
    match method(asked) {
        "HTTP" => {
            attributes.push(text(names::METHOD, names::METHOD_OTHER));
            attributes.push(text(names::METHOD_ORIGINAL, asked.as_str().get(..64).unwrap_or(asked.as_str())));
        }
        known => attributes.push(text(names::METHOD, known)),
    }
}

fn of_request(request: &Request, attributes: &mut Vec<KeyValue>) {
    of_method(&request.method, attributes);
    attributes.push(text(names::ROUTE, request.route));
    attributes.push(text(names::PATH, &*request.path));
    attributes.push(text(names::SCHEME, request.scheme));
    let version = match request.version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    attributes.push(text(names::PROTOCOL_VERSION, version));
    if let Some(host) = &request.host {
        let port = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
        attributes.push(text(names::SERVER_ADDRESS, port.map_or(&**host, |(name, _)| name)));
        attributes.extend(port.map(|(_, port)| number(names::SERVER_PORT, port.into())));
    }
    attributes.extend(request.client.map(|client| text(names::CLIENT_ADDRESS, client.to_string())));
    attributes.extend(request.user_agent.as_ref().map(|agent| text(names::USER_AGENT, &**agent)));
}

/// What a call's span names as its error, if it has one. A client's own mistake is none of the server's. Source: the
/// conventions for HTTP spans.
fn error(record: &Record) -> Option<String> {
    let is_broken = match record.outcome {
        Outcome::Failed | Outcome::TimedOut | Outcome::Cancelled => true,
        Outcome::Answered | Outcome::Refused => false,
    };
    if record.status < 500 && !is_broken {
        return None;
    }
    let code = record.code.as_ref().map(|code| (**code).to_owned());
    Some(code.unwrap_or_else(|| match is_broken {
        true => record.outcome.name().to_owned(),
        false => record.status.to_string(),
    }))
}

fn of_record(record: &Record, attributes: &mut Vec<KeyValue>) {
    if record.status > 0 {
        attributes.push(number(names::STATUS, record.status));
    }
    attributes.push(text(names::FAAS_TRIGGER, names::FAAS_TRIGGER_HTTP));
    attributes.push(boolean(names::FAAS_COLDSTART, record.cold_starts > 0));
    if let Some(function) = &record.function {
        attributes.push(text(names::FAAS_NAME, &**function));
        attributes.push(text(names::FUNCTION, &**function));
    }
    if record.revision > 0 {
        attributes.push(text(names::FAAS_VERSION, record.revision.to_string()));
        attributes.push(number(names::REVISION, record.revision));
    }
    attributes.push(text(names::TENANT, &*record.tenant));
    attributes.push(text(names::OUTCOME, record.outcome.name()));
    // Where nothing is metered there is no record.
    if !record.id.is_empty() {
        attributes.push(text(names::FAAS_INVOCATION, &*record.id));
        attributes.push(text(names::USAGE_ID, &*record.id));
    }
    for (name, value) in
        [(names::KEY, &record.key), (names::CLASS, &record.class), (names::CODE, &record.code)]
    {
        attributes.extend(value.as_ref().map(|value| text(name, &**value)));
    }
    let sum = |of: fn(&Use) -> u64| record.uses.iter().map(of).fold(0, u64::saturating_add);
    for (name, value) in [
        (names::USAGE_WALL, record.wall_ns),
        (names::USAGE_HELD, record.held_ns),
        (names::USAGE_STARTUP, record.startup_ns),
        (names::USAGE_QUEUE, record.queue_ns),
        (names::USAGE_INFERENCE, record.inference_ns),
        (names::USAGE_GUEST, record.guest_ns),
        (names::USAGE_GUEST_CPU, record.guest_cpu_ns),
        (names::USAGE_HOST_MEMORY, record.host_memory_byte_ms),
        (names::USAGE_REQUEST, record.request_bytes),
        (names::USAGE_RESPONSE, record.response_bytes),
        (names::USAGE_EGRESS, record.egress_bytes),
        (names::USAGE_DEVICE, sum(|used| used.device_ns)),
        (names::USAGE_DEVICE_MEMORY, sum(|used| used.memory_byte_ms)),
        (names::USAGE_LOAD, sum(|used| used.load_ns)),
        (names::USAGE_INFERENCES, sum(|used| used.inferences)),
        (names::USAGE_ROWS, sum(|used| used.rows)),
        (names::USAGE_PADDING, sum(|used| used.padding_rows)),
    ] {
        // As records do it: what is zero is left out.
        if value > 0 {
            attributes.push(number(name, value));
        }
    }
}

fn of_inference(inference: &Inference, span: &mut OtlpSpan) {
    span.name = named(names::SPAN_INFERENCE, &inference.model);
    span.attributes = vec![text(names::MODEL, &*inference.model), text(names::DEVICE, &*inference.device)];
    for (name, value) in [
        (names::QUEUE_NS, inference.queue_ns),
        (names::DEVICE_NS, inference.device_ns),
        (names::ROWS, inference.rows),
        (names::BATCH_ROWS, inference.batch_rows),
        (names::PADDING_ROWS, inference.padding_rows),
        (names::OPERATORS, inference.operators),
    ] {
        span.attributes.push(number(name, value));
    }
    if let Some(error) = &inference.error {
        span.attributes.push(text(names::ERROR_TYPE, &**error));
        span.status = Some(failed());
    }
    span.links = inference.links.iter().map(link).collect();
}

fn link(link: &Link) -> OtlpLink {
    let Link { trace, span, sampled } = link;
    OtlpLink {
        trace_id: trace.to_vec(),
        span_id: span.to_vec(),
        flags: u32::from(*sampled) | KNOWS_REMOTE,
        ..OtlpLink::default()
    }
}

fn of_outgoing(outgoing: &Outgoing, span: &mut OtlpSpan) {
    span.kind = SpanKind::Client.into();
    method(&outgoing.method).clone_into(&mut span.name);
    let attributes = &mut span.attributes;
    of_method(&outgoing.method, attributes);
    attributes.push(text(names::SCHEME, outgoing.scheme));
    attributes.push(text(names::SERVER_ADDRESS, &*outgoing.host));
    attributes.extend(outgoing.port.map(|port| number(names::SERVER_PORT, port.into())));
    attributes.extend(outgoing.status.map(|status| number(names::STATUS, status.into())));
    // For whoever asks, also a client's mistake is an error.
    let status = outgoing.status.filter(|status| *status >= 400).map(|status| status.to_string());
    if let Some(error) = outgoing.error.clone().or(status) {
        attributes.push(text(names::ERROR_TYPE, error));
        span.status = Some(failed());
    }
}

#[cfg(test)]
mod tests;
