//! What functions can rely on, in every language: the rows of `tests/conformance/README.md`, asked of one function in
//! each. `make conformance` prints them as a table.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::{Answer, Server, guests, onnx, root, until};

/// The languages: the function's name, and its component.
fn languages() -> Vec<(&'static str, PathBuf)> {
    let built = |language: &str| {
        let path = root().join(format!("target/{language}-conformance/guest.wasm"));
        assert!(path.exists(), "{} is not there; run `make guests` first", path.display());
        path
    };
    vec![("rust", guests::CONFORMANCE.into()), ("python", built("python")), ("js", built("js"))]
}

/// A server with the function in each language, and an upstream that functions may ask.
struct Bed {
    server: Server,
    upstream: String,
}

/// One function of the bed.
#[derive(Clone)]
struct Subject {
    bed: Arc<Bed>,
    language: &'static str,
}

type Checked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A row: its name, and what looks whether it holds. It panics where it does not.
type Row = (&'static str, fn(Subject) -> Checked);

macro_rules! rows {
    ($($name:literal => $check:ident),* $(,)?) => { [$(($name, |subject| Box::pin($check(subject)))),*] };
}

const ROWS: [Row; 31] = rows![
    "echo" => echo,
    "route" => route,
    "not found" => not_found,
    "method" => method,
    "headers" => headers,
    "empty" => empty,
    "bytes" => bytes,
    "json" => greeting,
    "bad json" => bad_json,
    "bad text" => bad_text,
    "stream out" => stream_out,
    "stream both ways" => stream_both_ways,
    "events" => events,
    "model" => model,
    "chain" => chain,
    "tensors" => tensors,
    "bad tensor" => bad_tensor,
    "wrong input" => wrong_input,
    "no output" => no_output,
    "no model" => no_model,
    "refusal" => refusal,
    "failure" => failure,
    "config" => config,
    "log" => log,
    "fetch" => fetch,
    "fetch streams" => fetch_streams,
    "fetch refused" => fetch_refused,
    "concurrent" => concurrent,
    "random, clock" => random_and_clock,
    "limits of time and memory" => limits,
    "limit of the body" => too_large,
];

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_every_language_answer_alike() {
    let languages = languages();
    let bed = Arc::new(bed(&languages).await);
    let mut table = format!("| {:26} |", "row");
    for (language, _) in &languages {
        table += &format!(" {language:6} |");
    }
    table += &format!("\n|{}|{}", "-".repeat(28), "--------|".repeat(languages.len()));
    let mut failed = vec![];
    for (name, check) in ROWS {
        table += &format!("\n| {name:26} |");
        for (language, _) in &languages {
            let checked = tokio::spawn(check(Subject { bed: Arc::clone(&bed), language })).await;
            table += &format!(" {:6} |", if checked.is_ok() { "ok" } else { "FAILED" });
            if let Err(error) = checked {
                failed.push(format!("{language}, {name}: {}", said(error)));
            }
        }
    }
    println!("{table}");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn said(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or("it panicked", |text| text).to_owned(),
    }
}

async fn bed(languages: &[(&'static str, PathBuf)]) -> Bed {
    let server = Server::with(|settings| {
        settings.egress.allow = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let upstream = upstream().await;
    let double = onnx::double(DataType::Float, &[onnx::Axis::Named("n")]);
    assert_eq!(server.put_model("double", double).await.status, 201);
    for (language, component) in languages {
        let config = json!({
            "models": ["double"],
            "env": { "GREETING": "hello" },
            "egress": [upstream.trim_start_matches("http://")],
            "limits": { "cpu_time": "2s", "memory": "256MiB", "request_bytes": "1MiB" },
        });
        let deployed = server.deploy(language, component, config).await;
        assert_eq!(deployed.status, 201, "{language}: {}", deployed.text());
    }
    Bed { server, upstream }
}

/// An upstream: `/echo` tells what it was asked, `/drip` answers in parts, `/meet` once two have come.
async fn upstream() -> String {
    let meeting = Arc::new(Barrier::new(2));
    let echo = |method: Method, headers: HeaderMap, body: Bytes| async move {
        let asked = headers.get("x-ask").map_or("nothing", |value| value.to_str().unwrap()).to_owned();
        let text = format!("{method} {} {asked}", String::from_utf8_lossy(&body));
        (StatusCode::ACCEPTED, [("x-reply", "heard")], text)
    };
    let drip = || async {
        let parts = futures::stream::iter(0..50).then(|n| async move {
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(format!("part {n} of the answer\n"))
        });
        axum::body::Body::from_stream(parts).into_response()
    };
    let meet = move || {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
            StatusCode::NO_CONTENT
        }
    };
    let router = Router::new().route("/echo", any(echo)).route("/drip", get(drip)).route("/meet", get(meet));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

impl Subject {
    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.bed.server.request(method, &format!("/fn/default/{}{path}", self.language))
    }

    async fn get(&self, path: &str) -> Answer {
        self.bed.server.send(self.request(Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.bed.server.send(self.request(Method::POST, path).body(body)).await
    }

    async fn post_json(&self, path: &str, body: Value) -> Answer {
        self.post(path, body.to_string()).await
    }

    async fn logs(&self, line: &str) {
        until(&format!("the log has {line:?}"), async || {
            self.bed.server.log(self.language).await.iter().any(|logged| logged.contains(line))
        })
        .await;
    }
}

fn kind(answer: &Answer) -> &str {
    answer.headers.get("content-type").map_or("", |value| value.to_str().unwrap())
}

fn assert_json(answer: &Answer, expected: Value) {
    assert_eq!((answer.status, kind(answer)), (200, "application/json"), "{}", answer.text());
    assert_eq!(answer.json, expected);
}

/// A problem document with this status, code and, if it is given, detail.
fn assert_problem(answer: &Answer, status: u16, code: &str, detail: Option<&str>) {
    assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.text());
    assert_eq!(kind(answer), "application/problem+json");
    assert_eq!((&answer.json["type"], &answer.json["status"]), (&json!("about:blank"), &json!(status)));
    assert!(answer.json["title"].as_str().is_some_and(|title| !title.is_empty()), "{}", answer.text());
    let told = answer.json["detail"].as_str().unwrap();
    assert!(!told.is_empty());
    if let Some(detail) = detail {
        assert_eq!(told, detail);
    }
}

async fn echo(subject: Subject) {
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let request =
            subject.request(method.clone(), "/echo?a=1&b=%20c").header("x-one", "1").header("x-one", "2");
        let answer = subject.bed.server.send(request.body("Grüße")).await;
        let expected = json!({
            "method": method.as_str(), "path": "/echo", "query": { "a": "1", "b": " c" }, "x-one": ["1", "2"],
            "body": "Grüße",
        });
        assert_json(&answer, expected);
    }
    assert_eq!(subject.get("/echo").await.json["body"], "");
}

async fn route(subject: Subject) {
    assert_json(&subject.get("/items/a%20b/parts/7").await, json!({ "id": "a b", "part": "7" }));
}

async fn not_found(subject: Subject) {
    assert_problem(&subject.get("/nowhere").await, 404, "not_found", None);
    assert_problem(&subject.get("/items/1/parts").await, 404, "not_found", None);
}

async fn method(subject: Subject) {
    let answer = subject.bed.server.send(subject.request(Method::PUT, "/greet")).await;
    assert_problem(&answer, 405, "method_not_allowed", None);
    assert_eq!(answer.headers["allow"], "POST");
    let head = subject.bed.server.send(subject.request(Method::HEAD, "/headers")).await;
    assert_eq!((head.status, head.body.len()), (201, 0));
}

async fn headers(subject: Subject) {
    let answer = subject.get("/headers").await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
    assert_eq!(kind(&answer), "text/plain; charset=utf-8");
    let all: Vec<_> = answer.headers.get_all("x-a").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(all.join(", "), "1, 2");
}

async fn empty(subject: Subject) {
    let answer = subject.get("/empty").await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
}

async fn bytes(subject: Subject) {
    let body: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    let answer = subject.post("/bytes", body.clone()).await;
    assert_eq!((answer.status, kind(&answer)), (200, "application/octet-stream"));
    assert!(answer.body.iter().eq(body.iter().rev()));
}

async fn greeting(subject: Subject) {
    assert_json(&subject.post("/greet", r#"{"name": "Ada"}"#).await, json!({ "greeting": "Hello, Ada!" }));
    assert_json(
        &subject.post("/greet", r#"{"name": "Zoë 🦀"}"#).await,
        json!({ "greeting": "Hello, Zoë 🦀!" }),
    );
}

async fn bad_json(subject: Subject) {
    assert_problem(&subject.post("/greet", "{").await, 400, "invalid_json", None);
}

async fn bad_text(subject: Subject) {
    assert_json(&subject.post("/text", "äbc").await, json!({ "characters": 3 }));
    assert_problem(&subject.post("/text", vec![b'a', 0xff]).await, 400, "invalid_text", None);
}

async fn stream_out(subject: Subject) {
    let answer = subject.get("/stream?n=3").await;
    assert_eq!((answer.status, kind(&answer)), (200, "text/plain; charset=utf-8"));
    assert_eq!(answer.text(), "line 0\nline 1\nline 2\n");
    assert!(!answer.headers.contains_key("content-length"), "it was sent before it was whole");
    assert_eq!(subject.get("/stream?n=0").await.text(), "");
}

/// The second part is sent once the first one's answer is there, so neither side can wait for all of the other's.
async fn stream_both_ways(subject: Subject) {
    let (send, parts) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = reqwest::Body::wrap_stream(ReceiverStream::new(parts));
    let request = subject.request(Method::POST, "/upper").body(body).send();
    send.send(Ok("first ".into())).await.unwrap();
    let mut answer = request.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "FIRST ");
    for n in 0..5 {
        send.send(Ok(format!("part {n}").into())).await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), format!("PART {n}"));
    }
    drop(send);
    assert!(answer.chunk().await.unwrap().is_none());
}

async fn events(subject: Subject) {
    let answer = subject.get("/events?n=2").await;
    assert_eq!((answer.status, kind(&answer)), (200, "text/event-stream"));
    let expected = "id: 0\nevent: tick\ndata: {\"n\":0}\n\nid: 1\nevent: tick\ndata: {\"n\":1}\n\n";
    assert_eq!(answer.text(), expected);
}

fn numbers(answer: &Answer) -> Vec<f64> {
    assert_eq!((answer.status, kind(answer)), (200, "application/json"), "{}", answer.text());
    answer.json.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

async fn model(subject: Subject) {
    assert_eq!(numbers(&subject.post("/double", "[1, 2.5]").await), [2.0, 5.0]);
    assert_eq!(numbers(&subject.post("/double?output=y", "[-1, 0, 3]").await), [-2.0, 0.0, 6.0]);
}

async fn chain(subject: Subject) {
    assert_eq!(numbers(&subject.post("/chain", "[1, 2.5]").await), [4.0, 10.0]);
}

async fn tensors(subject: Subject) {
    for (dtype, data, hex) in [
        ("f16", json!([1.0, -2.5]), "003c00c1"),
        ("bf16", json!([1.0, -2.5]), "803f20c0"),
        ("f32", json!([1.0, -2.5]), "0000803f000020c0"),
        ("f64", json!([1.0, -2.5]), "000000000000f03f00000000000004c0"),
        ("u8", json!([1, 255]), "01ff"),
        ("i32", json!([1, -2]), "01000000feffffff"),
        ("i64", json!([1, -2]), "0100000000000000feffffffffffffff"),
    ] {
        let answer =
            subject.post_json("/tensor", json!({ "dtype": dtype, "shape": [2, 1], "data": data })).await;
        assert_eq!(answer.status, 200, "{dtype}: {}", answer.text());
        assert_eq!(answer.json["dtype"], dtype);
        assert_eq!(answer.json["shape"], json!([2, 1]));
        assert_eq!(answer.json["bytes"], hex, "{dtype}");
        // 1 and 1.0 are one number in JSON.
        let floats = |list: &Value| -> Vec<f64> {
            list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        assert_eq!(floats(&answer.json["data"]), floats(&data), "{dtype}");
    }
    let scalar = subject.post_json("/tensor", json!({ "dtype": "f32", "shape": [], "data": [7] })).await;
    assert_eq!(
        (&scalar.json["shape"], &scalar.json["bytes"]),
        (&json!([]), &json!("0000e040")),
        "{}",
        scalar.text()
    );
}

async fn bad_tensor(subject: Subject) {
    let answer =
        subject.post_json("/tensor", json!({ "dtype": "f32", "shape": [2, 3], "data": [1, 2] })).await;
    assert_problem(&answer, 400, "invalid_tensor", None);
}

async fn wrong_input(subject: Subject) {
    assert_problem(&subject.post("/double?input=y", "[1]").await, 400, "invalid_tensor", None);
}

async fn no_output(subject: Subject) {
    assert_problem(&subject.post("/double?output=z", "[1]").await, 500, "no_such_output", None);
}

async fn no_model(subject: Subject) {
    assert_problem(&subject.post("/double?model=nowhere", "[1]").await, 500, "model_unavailable", None);
}

async fn refusal(subject: Subject) {
    let answer = subject.get("/refuse").await;
    assert_problem(&answer, 409, "taken", Some("it is taken"));
    assert_eq!(answer.headers["x-why"], "because");
}

async fn failure(subject: Subject) {
    assert_problem(&subject.get("/fail").await, 500, "function_error", Some("all is lost"));
    subject.logs("all is lost").await;
    let lines = subject.bed.server.log(subject.language).await;
    assert!(lines.iter().any(|line| line.contains("ERROR") && line.contains("all is lost")), "{lines:?}");
}

async fn config(subject: Subject) {
    assert_json(&subject.get("/config/GREETING").await, json!({ "value": "hello" }));
    assert_problem(&subject.get("/config/NOTHING").await, 500, "missing_config", None);
}

async fn log(subject: Subject) {
    assert_eq!(subject.get("/log").await.status, 204);
    for line in ["DEBUG one", "INFO two\\nlines", "WARN three", "ERROR four"] {
        subject.logs(line).await;
    }
}

async fn fetch(subject: Subject) {
    let url = format!("{}/echo", subject.bed.upstream);
    let body = json!({ "url": url, "method": "PUT", "body": "over there", "header": "well" });
    let answer = subject.post_json("/fetch", body).await;
    assert_json(&answer, json!({ "status": 202, "body": "PUT over there well", "x-reply": "heard" }));
}

async fn fetch_streams(subject: Subject) {
    let answer = subject.get(&format!("/relay?url={}/drip", subject.bed.upstream)).await;
    let expected: String = (0..50).map(|n| format!("part {n} of the answer\n")).collect();
    assert_eq!((answer.status, answer.text()), (200, expected));
}

async fn fetch_refused(subject: Subject) {
    let body = json!({ "url": "http://elsewhere.example/", "method": "POST", "body": "", "header": "" });
    assert_problem(&subject.post_json("/fetch", body).await, 502, "fetch_failed", None);
}

async fn concurrent(subject: Subject) {
    let url = format!("{}/meet", subject.bed.upstream);
    assert_json(&subject.post_json("/both", json!({ "urls": [url, url] })).await, json!([204, 204]));
}

async fn random_and_clock(subject: Subject) {
    let random = async || {
        let answer = subject.get("/random").await;
        let text = answer.json["random"].as_str().unwrap_or_default().to_owned();
        assert!(text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", answer.text());
        text
    };
    assert_ne!(random().await, random().await);
    let before = std::time::SystemTime::now();
    let answer = subject.get("/clock").await;
    let told = std::time::UNIX_EPOCH + std::time::Duration::from_millis(answer.json["now"].as_u64().unwrap());
    // The guest's milliseconds are cut off.
    let slack = std::time::Duration::from_millis(1);
    assert!(told + slack >= before && told <= std::time::SystemTime::now() + slack, "{}", answer.text());
}

async fn limits(subject: Subject) {
    let spun = subject.get("/spin").await;
    assert_eq!((spun.status, spun.code()), (504, "cpu_limit"), "{}", spun.text());
    let grown = subject.get("/grow").await;
    assert_eq!((grown.status, grown.code()), (502, "memory_limit"), "{}", grown.text());
}

async fn too_large(subject: Subject) {
    let answer = subject.post("/bytes", vec![0; (1 << 20) + 1]).await;
    assert_eq!((answer.status, answer.code()), (413, "too_large"), "{}", answer.text());
}
