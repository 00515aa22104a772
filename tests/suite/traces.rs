//! Traces, as a receiver of OpenTelemetry's protocol gets them; and one that is slow, unwilling or gone.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tract_onnx::pb::tensor_proto::DataType;
use weir::config::{OtlpConfig, Protocol};
use weir_tests::onnx::Axis;
use weir_tests::otlp::{Receiver, Reply, attributes, body};
use weir_tests::{Answer, Process, Server, guests, onnx, until};

const CALL: &str = "POST /fn/{tenant}/{function}/{*path}";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A server that exports to a receiver, with the guest `echo`.
async fn server(endpoint: String, change: impl FnOnce(&mut OtlpConfig)) -> Server {
    let server = Server::with(|settings| {
        settings.otlp.endpoint = Some(endpoint);
        settings.otlp.delay = Duration::from_millis(10);
        // A call is one span where a test counts them: which parts take long enough for one is not the test's to say.
        settings.otlp.spans = 0;
        change(&mut settings.otlp);
        settings.egress.allow = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    assert_eq!(server.deploy("echo", guests::ECHO, json!({})).await.status, 201);
    server
}

fn http(config: &mut OtlpConfig) {
    config.protocol = Protocol::Http;
}

/// Calls the guest as part of a trace.
async fn call(server: &Server, flags: &str) -> Answer {
    let request = server.request(reqwest::Method::POST, "/fn/default/echo/some/path?token=secret");
    let request = request.header("traceparent", format!("00-{TRACE}-{PARENT}-{flags}"));
    server.send(request.header("tracestate", "a=1").header("baggage", "user=alice").body("x")).await
}

fn header<'a>(seen: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = seen["headers"].as_array().unwrap().iter();
    headers.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().unwrap()).collect()
}

fn counts(server: &Server) -> Arc<weir::Counts> {
    server.exported.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_refused_before_it_begins_has_its_trace() {
    let receiver = Receiver::grpc().await;
    let server = server(receiver.endpoint(), |_| {}).await;
    let seldom = json!({ "calls_per_second": 1, "call_burst": 1 });
    assert_eq!(server.deploy("echo", guests::ECHO, seldom).await.status, 201);
    let mut refused = call(&server, "01").await;
    while refused.status == 200 {
        refused = call(&server, "01").await;
    }
    assert_eq!((refused.status, refused.code()), (429, "rate_limited"));
    let is_it = |span: &Span| attributes(&span.attributes)["weir.outcome"] == "refused";
    until("it is there", async || receiver.spans().iter().any(is_it)).await;
    let span = receiver.spans().into_iter().find(is_it).unwrap();
    assert_eq!((hex::encode(&span.trace_id), &*span.name), (TRACE.to_owned(), CALL));
    let said = attributes(&span.attributes);
    for (name, value) in [
        ("http.response.status_code", "429"),
        ("weir.tenant", "default"),
        ("weir.function", "echo"),
        ("weir.code", "rate_limited"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!said.contains_key("weir.usage.id"), "those that are refused at once have a record together");
    server.stop().await;
}

fn beneath<'a>(spans: &'a [Span], parent: &Span, name: &str) -> Vec<&'a Span> {
    let is_child = |span: &&Span| span.parent_span_id == parent.span_id && span.name == name;
    spans.iter().filter(is_child).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_gets_a_calls_trace_and_the_guest_its_place_in_it() {
    let receiver = Receiver::grpc().await;
    let server = server(receiver.endpoint(), |config| {
        config.service_name = "edge".to_owned();
        config.resource.insert("deployment.environment.name".to_owned(), "test".to_owned());
        config.headers.insert("x-team".to_owned(), "weir".to_owned());
        config.client_address = true;
    })
    .await;
    let seen = call(&server, "01").await.json;
    let span = receiver.span(CALL).await;
    assert_eq!(
        (hex::encode(&span.trace_id), hex::encode(&span.parent_span_id)),
        (TRACE.to_owned(), PARENT.to_owned())
    );
    assert_eq!((span.kind(), span.trace_state.as_str(), span.flags), (SpanKind::Server, "a=1", 0x301));
    assert_eq!(header(&seen, "traceparent"), [format!("00-{TRACE}-{}-01", hex::encode(&span.span_id))]);
    assert_eq!((header(&seen, "tracestate"), header(&seen, "baggage")), (vec!["a=1"], vec!["user=alice"]));
    let said = attributes(&span.attributes);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("url.path", "/fn/default/echo/some/path"),
        ("url.scheme", "http"),
        ("server.address", "127.0.0.1"),
        ("client.address", "127.0.0.1"),
        ("faas.name", "echo"),
        ("faas.version", "1"),
        ("weir.tenant", "default"),
        ("weir.outcome", "answered"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!said.values().any(|value| value.contains("secret")), "{said:?}");
    let mut lines: Vec<_> = span.events.iter().map(|event| attributes(&event.attributes)).collect();
    lines.sort();
    let lines: Vec<_> = lines.iter().map(|said| (&*said["log.iostream"], &*said["weir.log.text"])).collect();
    assert_eq!(lines, [("stderr", "stderr of /some/path"), ("stdout", "stdout of /some/path")]);
    let resource = receiver.resource().unwrap();
    let of = attributes(&resource.attributes);
    assert_eq!((&*of["service.name"], &*of["deployment.environment.name"]), ("edge", "test"));
    assert_eq!(receiver.header("x-team").as_deref(), Some("weir"));
    // The same lines as logs, with their trace.
    until("its lines are there", async || receiver.logs().len() >= 2).await;
    let logs = receiver.logs();
    let line = logs.iter().find(|record| body(record) == "stdout of /some/path").unwrap();
    assert_eq!((&line.trace_id, &line.span_id), (&span.trace_id, &span.span_id));
    assert_eq!(attributes(&line.attributes)["weir.function"], "echo");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_sampled_as_its_caller_says_and_else_by_the_ratio() {
    let receiver = Receiver::http().await;
    let server = server(receiver.endpoint(), |config| {
        http(config);
        config.sample_ratio = 0.0;
    })
    .await;
    let seen = call(&server, "00").await.json;
    let passed_on = header(&seen, "traceparent")[0].to_owned();
    assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on.ends_with("-00"), "{passed_on}");
    // One that begins here, and one whose trace is not well-formed.
    let seen = server.call("echo", "/", "x").await.json;
    assert!(header(&seen, "traceparent")[0].ends_with("-00"));
    call(&server, "0X").await;
    let seen = call(&server, "01").await.json;
    receiver.span(CALL).await;
    server.stop().await;
    let spans = receiver.spans();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert!(header(&seen, "traceparent")[0].contains(&hex::encode(&span.span_id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guests_requests_carry_its_trace() {
    let receiver = Receiver::grpc().await;
    let server = server(receiver.endpoint(), |config| config.spans = 128).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let outside = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let host = format!("127.0.0.1:{port}");
    server.deploy("trouble", guests::TROUBLE, json!({ "egress": [host] })).await;
    let said = server.call("trouble", "/fetch=1", format!("http://{host}/secret")).await;
    assert!(said.text().starts_with("404"), "{}", said.text());
    let asked = outside.await.unwrap();
    let called = receiver.span(CALL).await;
    let spans = receiver.spans();
    let sent = beneath(&spans, &called, "GET");
    let [sent] = &sent[..] else { panic!("{spans:?}") };
    let expected =
        format!("traceparent: 00-{}-{}-01\r\n", hex::encode(&called.trace_id), hex::encode(&sent.span_id));
    assert!(asked.contains(&expected), "{asked}");
    let said = attributes(&sent.attributes);
    assert_eq!((&*said["server.address"], said["server.port"].clone()), ("127.0.0.1", port.to_string()));
    assert_eq!((&*said["http.response.status_code"], &*said["error.type"]), ("404", "404"));
    assert_eq!(sent.kind(), SpanKind::Client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inferences_are_in_their_calls_traces_and_know_who_rode_with_them() {
    let receiver = Receiver::grpc().await;
    let server = server(receiver.endpoint(), |config| config.spans = 128).await;
    let put = server.put_model("m", onnx::double(DataType::Float, &[Axis::Named("n"), Axis::Fixed(2)])).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let config = json!({ "max_batch": 2, "max_queue_delay": "1s" });
    let put = server.put("/v1/models/m/config", config).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let deployed = server.deploy("nn", guests::NN, json!({ "models": ["m"] })).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    let run = async || server.call("nn", "/raw?model=m&input=x&type=fp32&shape=1,2", vec![0; 8]).await.status;
    until("two ride together", async || {
        assert_eq!(tokio::join!(run(), run()), (200, 200));
        server.devices.stats().batches > 0
    })
    .await;
    let rode = || {
        let linked = |span: &Span| span.name == "inference m" && !span.links.is_empty();
        receiver.spans().into_iter().filter(linked).collect::<Vec<_>>()
    };
    until("both inferences are there", async || rode().len() == 2).await;
    // A call's own span comes with its parts.
    let (spans, rode) = (receiver.spans(), rode());
    for (own, other) in [(&rode[0], &rode[1]), (&rode[1], &rode[0])] {
        let said = attributes(&own.attributes);
        assert_eq!((&*said["weir.inference.rows"], &*said["weir.inference.batch_rows"]), ("1", "2"));
        let [link] = &own.links[..] else { panic!("{own:?}") };
        assert_eq!((&link.trace_id, &link.span_id), (&other.trace_id, &other.parent_span_id));
        let call = spans.iter().find(|span| span.span_id == own.parent_span_id).unwrap();
        assert_eq!((call.name.as_str(), &call.trace_id), (CALL, &own.trace_id));
        let (figures, device_ns) = (attributes(&call.attributes), &said["weir.inference.device_ns"]);
        assert_eq!((&*figures["weir.usage.inferences"], &figures["weir.usage.device_ns"]), ("1", device_ns));
        assert_eq!(figures["weir.usage.id"], figures["faas.invocation_id"]);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_receiver_cannot_take_now_is_sent_again_and_what_it_refuses_is_not() {
    for (receiver, protocol, why) in [
        (Receiver::grpc().await, Protocol::Grpc, Reply::Unavailable),
        (Receiver::http().await, Protocol::Http, Reply::Unavailable),
        (Receiver::http().await, Protocol::Http, Reply::Busy(0)),
    ] {
        let server = server(receiver.endpoint(), |config| config.protocol = protocol).await;
        receiver.reply(&[why, why]);
        call(&server, "01").await;
        receiver.span(CALL).await;
        assert_eq!((receiver.requests(), receiver.spans().len()), (3, 1), "{protocol:?} {why:?}");
        let counts = counts(&server);
        until("it is counted", async || counts.traces.exported() == 1).await;
        assert_eq!((counts.traces.retries(), counts.traces.failed(), counts.traces.dropped()), (2, 0, 0));
        // A batch that is refused is lost, and the next one is sent.
        receiver.reply(&[Reply::Refuse]);
        call(&server, "01").await;
        until("it is refused", async || counts.traces.failed() == 1).await;
        receiver.reply(&[Reply::Partial(1)]);
        call(&server, "01").await;
        until("it is rejected", async || counts.traces.rejected() == 1).await;
        call(&server, "01").await;
        until("the next is taken", async || counts.traces.exported() == 2).await;
        assert_eq!((counts.traces.retries(), counts.traces.failed()), (2, 1));
        assert_eq!(receiver.requests(), 6);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_says_how_long_to_wait_and_what_is_over_then_is_given_up() {
    let receiver = Receiver::http().await;
    let server = server(receiver.endpoint(), |config| {
        http(config);
        config.retry_for = Duration::from_secs(60);
    })
    .await;
    // Longer than it is tried.
    receiver.reply(&[Reply::Busy(3600)]);
    call(&server, "01").await;
    let counts = counts(&server);
    until("it is given up", async || counts.traces.failed() == 1).await;
    assert_eq!((receiver.requests(), counts.traces.retries()), (1, 0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_says_nothing_slows_no_call() {
    for (receiver, protocol) in
        [(Receiver::grpc().await, Protocol::Grpc), (Receiver::http().await, Protocol::Http)]
    {
        receiver.always(Reply::Stall);
        let server = server(receiver.endpoint(), |config| {
            config.protocol = protocol;
            config.timeout = Duration::from_secs(3600);
            config.flush_timeout = Duration::from_millis(50);
            config.queue = 4.try_into().unwrap();
            config.batch = 1.try_into().unwrap();
        })
        .await;
        for _ in 0..20 {
            assert_eq!(call(&server, "01").await.status, 200);
        }
        let counts = counts(&server);
        // One on its way, four in the queue.
        until("what has no room is dropped", async || counts.traces.dropped() >= 15).await;
        assert_eq!(receiver.requests(), 1);
        assert_eq!((counts.traces.queued(), counts.traces.exported()), (4, 0));
        server.stop().await;
        let sums = (counts.traces.failed() + counts.traces.dropped(), counts.traces.queued());
        assert_eq!(sums, (20, 0), "all that was given is accounted for");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_receiver_calls_are_answered_and_their_traces_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = server(nobody, |config| config.retry_for = Duration::ZERO).await;
    assert_eq!(call(&server, "01").await.status, 200);
    let counts = counts(&server);
    until("it is given up", async || counts.traces.failed() == 1).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sent_yet_goes_out_at_a_stop() {
    let receiver = Receiver::grpc().await;
    let server = server(receiver.endpoint(), |config| config.delay = Duration::from_secs(3600)).await;
    for _ in 0..3 {
        call(&server, "01").await;
    }
    assert_eq!(receiver.spans().len(), 0);
    server.stop().await;
    assert_eq!(receiver.spans().len(), 3);
    assert!(receiver.logs().len() >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_with_a_certificate_of_ones_own_is_trusted_by_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let receiver = Receiver::grpc_tls(&made.cert.pem(), &made.signing_key.serialize_pem()).await;
    let endpoint = format!("https://localhost:{}", receiver.address.port());
    let trusting = server(endpoint.clone(), |config| config.ca = Some(ca)).await;
    call(&trusting, "01").await;
    receiver.span(CALL).await;
    trusting.stop().await;
    let other = server(endpoint, |config| config.retry_for = Duration::ZERO).await;
    call(&other, "01").await;
    let counts = counts(&other);
    until("it is not sent", async || counts.traces.failed() == 1).await;
    assert_eq!(receiver.requests(), 1);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_names_the_receiver_and_the_servers_log_goes_there_too() {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::http().await);
    let mut command = Process::server_of(&Process::binary("weir"), folder.path());
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, "[log]\nformat = \"json\"\n[otlp]\ndelay = \"10ms\"\n").unwrap();
    command.arg("--config").arg(file);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint());
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf").env("OTEL_SERVICE_NAME", "edge");
    let process = Process::start(command).await;
    let says = |text: &str| receiver.logs().iter().any(|record| body(record).contains(text));
    until("it says where it listens", async || says("listening on")).await;
    let record = receiver.logs().into_iter().find(|record| body(record).contains("listening on")).unwrap();
    assert_eq!((record.severity_text.as_str(), record.trace_id.len()), ("INFO", 0));
    assert_eq!(attributes(&record.attributes)["weir.log.target"], "weir::cli::serve");
    process.signal("TERM");
    process.says("\"message\":\"stopping: ", 1).await;
    assert_eq!(process.ends().await, Some(0));
    assert!(says("stopping: "), "what is logged before the stop's end is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_sent_as_they_are_shown() {
    let receiver = Receiver::grpc().await;
    let endpoint = format!("http://{}", receiver.address);
    let server = Server::with(|settings| {
        settings.otlp.endpoint = Some(endpoint);
        settings.otlp.metrics_interval = Duration::from_millis(50);
        settings.otlp.delay = Duration::from_millis(10);
    })
    .await;
    assert_eq!(server.deploy("hello", guests::HELLO, json!({})).await.status, 201);
    for _ in 0..3 {
        assert_eq!(server.call("hello", "/", vec![]).await.status, 200);
    }
    until("the calls are told", async || {
        let metrics = receiver.metrics();
        let last = metrics.iter().rfind(|metric| metric.name == "weir_usage_records");
        last.is_some_and(|metric| format!("{metric:?}").contains("AsInt(3)"))
    })
    .await;
    let names: std::collections::BTreeSet<String> =
        receiver.metrics().into_iter().map(|metric| metric.name).collect();
    let request = server.request(reqwest::Method::GET, "/metrics");
    let text = server.send(request.header("accept", "application/openmetrics-text")).await.text();
    // A line that says what a family is comes before its samples, if there are any.
    let lines: Vec<&str> = text.lines().collect();
    let family = |pair: &[&str]| {
        let name = pair[0].strip_prefix("# TYPE ")?.split(' ').next()?;
        (!pair[1].starts_with('#')).then(|| name.to_owned())
    };
    let shown: std::collections::BTreeSet<String> = lines.windows(2).filter_map(family).collect();
    assert!(shown.len() > 60, "{text}");
    assert_eq!(names, shown);
}
