use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::super::Recording;
use super::*;
use crate::otlp::Exporter;

/// The attributes of a span, as texts.
fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let value = |pair: &KeyValue| match pair.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{other:?}"),
    };
    let all: BTreeMap<_, _> = of.iter().map(|pair| (pair.key.as_str(), value(pair))).collect();
    assert_eq!(all.len(), of.len(), "none is there twice");
    all
}

/// The spans of a call that was told of by `tell`, and that used what `record` says.
fn spans(context: Context, tell: impl FnOnce(&Recording, Instant), record: Record) -> Vec<OtlpSpan> {
    let exporter = Arc::new(Exporter::to_nowhere());
    let started = Instant::now();
    let mut recording = Recording::on(context, started, Arc::clone(&exporter));
    tell(&recording, started);
    recording.end(record);
    let call = exporter.take_trace().unwrap();
    let count = crate::otlp::queue::Weighed::count(&call);
    let mut spans = vec![];
    of(&call, &mut spans);
    assert_eq!(spans.len() as u64, count, "as many as were counted");
    spans
}

fn record() -> Record {
    Record {
        id: "ab-1".to_owned(),
        tenant: "acme".into(),
        function: Some("sort".into()),
        revision: 3,
        key: Some("k1".into()),
        class: Some("standard".into()),
        status: 200,
        wall_ns: 9_000_000,
        guest_cpu_ns: 77,
        cold_starts: 1,
        uses: vec![
            Use { device: "cpu".into(), device_ns: 5, rows: 1, ..Use::default() },
            Use { device: "cpu".into(), device_ns: 7, ..Use::default() },
        ],
        ..Record::default()
    }
}

fn request(method: &str, host: Option<&str>) -> Request {
    let mut asked = http::Request::builder().method(method).uri("/fn/acme/sort/a?token=secret");
    asked = asked.header("user-agent", "curl/8");
    if let Some(host) = host {
        asked = asked.header("host", host);
    }
    Request::new(&asked.body(()).unwrap(), "/fn/{tenant}/{function}/{*path}", true, None)
}

#[test]
fn a_calls_span_says_what_was_asked_and_what_it_cost() {
    let parent = Context::root(|_| true);
    let context = parent.child();
    let all = spans(
        context.clone(),
        |call, _| call.request(|| request("POST", Some("weir.example:7070"))),
        record(),
    );
    let [server] = &all[..] else { panic!("{all:?}") };
    assert_eq!(server.name, "POST /fn/{tenant}/{function}/{*path}");
    assert_eq!((server.kind(), server.status.as_ref()), (SpanKind::Server, None));
    assert_eq!((&server.trace_id[..], &server.span_id[..]), (&context.trace[..], &context.span[..]));
    assert_eq!((&server.parent_span_id[..], server.flags), (&parent.span[..], 0x301));
    assert_eq!(server.end_time_unix_nano - server.start_time_unix_nano, 9_000_000);
    let said = attributes(&server.attributes);
    let expected = BTreeMap::from([
        ("http.request.method", "POST"),
        ("http.route", "/fn/{tenant}/{function}/{*path}"),
        ("http.response.status_code", "200"),
        ("url.path", "/fn/acme/sort/a"),
        ("url.scheme", "https"),
        ("network.protocol.version", "1.1"),
        ("server.address", "weir.example"),
        ("server.port", "7070"),
        ("user_agent.original", "curl/8"),
        ("faas.name", "sort"),
        ("faas.version", "3"),
        ("faas.trigger", "http"),
        ("faas.coldstart", "true"),
        ("faas.invocation_id", "ab-1"),
        ("weir.tenant", "acme"),
        ("weir.function", "sort"),
        ("weir.revision", "3"),
        ("weir.key", "k1"),
        ("weir.class", "standard"),
        ("weir.outcome", "answered"),
        ("weir.usage.id", "ab-1"),
        ("weir.usage.wall_ns", "9000000"),
        ("weir.usage.guest_cpu_ns", "77"),
        ("weir.usage.device_ns", "12"),
        ("weir.usage.rows", "1"),
    ]);
    let expected = expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(said, expected);
}

#[test]
fn a_method_of_a_clients_own_is_none_of_the_names() {
    let all = spans(
        Context::root(|_| true),
        |call, _| call.request(|| request("BREW", Some("[::1]:80"))),
        record(),
    );
    let said = attributes(&all[0].attributes);
    assert_eq!(all[0].name, "HTTP /fn/{tenant}/{function}/{*path}");
    assert_eq!((&*said["http.request.method"], &*said["http.request.method_original"]), ("_OTHER", "BREW"));
    assert_eq!((&*said["server.address"], &*said["server.port"]), ("[::1]", "80"));
    assert_eq!((&all[0].parent_span_id[..], all[0].flags), (&[][..], 0x101), "it begins a trace");
}

#[test]
fn a_call_is_an_error_where_it_is_the_servers_or_the_functions() {
    for (outcome, status, code, expected) in [
        (Outcome::Answered, 200, None, None),
        (Outcome::Answered, 404, None, None),
        (Outcome::Answered, 503, None, Some("503")),
        (Outcome::Refused, 429, Some("rate_limited"), None),
        (Outcome::Refused, 503, Some("server_overloaded"), Some("server_overloaded")),
        (Outcome::Failed, 502, Some("function_failed"), Some("function_failed")),
        (Outcome::Failed, 200, None, Some("failed")),
        (Outcome::TimedOut, 200, Some("request_timeout"), Some("request_timeout")),
        (Outcome::Cancelled, 0, None, Some("cancelled")),
    ] {
        let record = Record { outcome, status, code: code.map(Into::into), ..record() };
        let all = spans(Context::root(|_| true), |_, _| {}, record);
        let said = attributes(&all[0].attributes);
        assert_eq!(said.get("error.type").map(String::as_str), expected, "{outcome:?} {status}");
        let is_error = all[0].status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
        assert_eq!(is_error, expected.is_some());
        assert_eq!(said.get("weir.code").map(String::as_str), code);
    }
}

#[test]
fn the_parts_of_a_call_are_beneath_it() {
    let context = Context::root(|_| true);
    let (other, out) = (Context::root(|_| true).link(), context.child());
    let all = spans(
        context.clone(),
        |call, start| {
            let at = |millis| start + Duration::from_millis(millis);
            call.span(at(0), at(1), || What::Held);
            call.span(at(1), at(4), || What::Startup);
            call.span(at(1), at(2), || What::Code);
            call.span(at(3), at(4), || What::Sandbox);
            let inference = Inference {
                model: "resnet".into(),
                device: "cpu".into(),
                queue_ns: 1_000_000,
                device_ns: 2_000_000,
                rows: 1,
                batch_rows: 4,
                padding_rows: 1,
                error: Some("timeout".into()),
                links: vec![other],
                ..Inference::default()
            };
            call.span(at(4), at(8), || What::Inference(Box::new(inference)));
            let outgoing = Outgoing {
                method: Method::GET,
                scheme: "https",
                host: "api.example".to_owned(),
                port: Some(443),
                status: Some(404),
                error: None,
            };
            call.span_of(&out, at(8), at(9), || What::Outgoing(Box::new(outgoing)));
            call.line("stdout", "hello");
        },
        record(),
    );
    let of = |name: &str| all.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}"));
    let server = all.last().unwrap();
    let (held, startup, code) = (of("held"), of("startup"), of("startup code"));
    let (queue, inference, get) = (of("queue cpu"), of("inference resnet"), of("GET"));
    assert_eq!(all.len(), 8);
    for span in [held, startup, of("sandbox"), queue, inference, get] {
        assert_eq!(span.parent_span_id, server.span_id, "{}", span.name);
    }
    assert_eq!(code.parent_span_id, startup.span_id);
    let times = |span: &OtlpSpan| {
        let begin = server.start_time_unix_nano;
        [span.start_time_unix_nano - begin, span.end_time_unix_nano - begin].map(|nanos| nanos / 1_000_000)
    };
    assert_eq!([held, startup, queue, inference, get].map(times), [[0, 1], [1, 4], [4, 5], [5, 8], [8, 9]]);
    let said = attributes(&inference.attributes);
    assert_eq!((&*said["weir.inference.batch_rows"], &*said["error.type"]), ("4", "timeout"));
    assert_eq!(
        (&inference.links[0].trace_id[..], &inference.links[0].span_id[..]),
        (&other.trace[..], &other.span[..])
    );
    let said = attributes(&get.attributes);
    assert_eq!(
        (get.kind(), &get.span_id[..], &*said["error.type"]),
        (SpanKind::Client, &out.span[..], "404")
    );
    assert_eq!((&*said["server.address"], &*said["server.port"]), ("api.example", "443"));
    let [event] = &server.events[..] else { panic!("{:?}", server.events) };
    let said = attributes(&event.attributes);
    assert_eq!(
        (event.name.as_str(), &*said["log.iostream"], &*said["weir.log.text"]),
        ("log", "stdout", "hello")
    );
}
