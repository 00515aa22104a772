//! What people get wrong, and the problem that each mistake gets.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::{self, Axis};
use weir_tests::{Server, guests};

/// A component in the text format, as bytes.
fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn raw(server: &Server, name: &str, component: impl Into<reqwest::Body>) -> RequestBuilder {
    server
        .request(Method::POST, &format!("/v1/functions/{name}/revisions"))
        .header("content-type", "application/wasm")
        .body(component)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_gets_its_problem_and_the_server_stays_up() {
    let server = Server::start().await;
    let hello = std::fs::read(guests::HELLO).unwrap();
    server.deploy("hello", guests::HELLO, json!({})).await;
    server.put_model("double", onnx::double(DataType::Float, &[Axis::Fixed(1)])).await;

    let with_config = |config: &str| {
        let part = reqwest::multipart::Part::bytes(hello.clone());
        let form = reqwest::multipart::Form::new().text("config", config.to_owned()).part("component", part);
        server.request(Method::POST, "/v1/functions/f/revisions").multipart(form)
    };
    let with_part = |name: &'static str| {
        let form = reqwest::multipart::Form::new().text(name, "x");
        server.request(Method::POST, "/v1/functions/f/revisions").multipart(form)
    };
    let model = |query: &str, bytes: Vec<u8>| {
        server.request(Method::PUT, &format!("/v1/models/m{query}")).body(bytes)
    };
    let mut broken_model = onnx::sum();
    broken_model.truncate(broken_model.len() / 2);

    let cases: Vec<(&str, RequestBuilder, u16, &str, &str)> = vec![
        // Components.
        ("nothing", raw(&server, "f", ""), 422, "invalid_component", "the body is empty"),
        ("text", raw(&server, "f", "hello"), 422, "invalid_component", "not WebAssembly"),
        (
            "a core module",
            raw(&server, "f", component("(module)")),
            422,
            "invalid_component",
            "a core module, not a component",
        ),
        (
            "half a component",
            raw(&server, "f", hello[..hello.len() / 2].to_vec()),
            422,
            "invalid_component",
            "the component is not valid",
        ),
        (
            "a preamble cut short",
            raw(&server, "f", hello[..6].to_vec()),
            422,
            "invalid_component",
            "ends within its first eight bytes",
        ),
        (
            "a component that exports nothing",
            raw(&server, "f", component("(component)")),
            422,
            "invalid_component",
            "exports neither `wasi:http/incoming-handler@0.2` nor `wasi:http/handler@0.3`; it exports nothing",
        ),
        (
            "a component that exports something else",
            raw(&server, "f", component("(component (instance $i) (export \"a:b/c\" (instance $i)))")),
            422,
            "invalid_component",
            "it exports `a:b/c`",
        ),
        (
            "an import that is not offered",
            raw(
                &server,
                "f",
                component("(component (import \"acme:gpu/direct\" (instance (export \"go\" (func)))))"),
            ),
            422,
            "invalid_component",
            "acme:gpu/direct",
        ),
        // Bodies.
        (
            "a component as JSON",
            server.request(Method::POST, "/v1/functions/f/revisions").json(&json!({})),
            415,
            "unsupported_media_type",
            "`application/json`",
        ),
        (
            "a component of no type",
            server.request(Method::POST, "/v1/functions/f/revisions").body("x"),
            415,
            "unsupported_media_type",
            "application/wasm",
        ),
        ("multipart without a component", with_part("config"), 422, "invalid_config", "config: "),
        (
            "multipart with an unknown part",
            with_part("wasm"),
            400,
            "invalid_request",
            "there is no part `wasm`",
        ),
        (
            "multipart without a boundary",
            server
                .request(Method::POST, "/v1/functions/f/revisions")
                .header("content-type", "multipart/form-data")
                .body("x"),
            400,
            "invalid_request",
            "multipart",
        ),
        // Configurations.
        ("a configuration that is not JSON", with_config("{"), 422, "invalid_config", "config: "),
        (
            "an unknown field",
            with_config(r#"{"modles": []}"#),
            422,
            "invalid_config",
            "unknown field `modles`",
        ),
        (
            "a duration without a unit",
            with_config(r#"{"idle_timeout": "30"}"#),
            422,
            "invalid_config",
            "`30` is not a duration",
        ),
        (
            "too much memory",
            with_config(r#"{"limits": {"memory": "64GiB"}}"#),
            422,
            "invalid_config",
            "limits.memory is 64.0 GiB; the most here is 1.0 GiB",
        ),
        (
            "a configuration of more than a megabyte",
            with_config(&format!("{{\"env\": {{\"A\": \"{}\"}}}}", "x".repeat(1 << 20))),
            413,
            "too_large",
            "config is larger than 1.0 MiB",
        ),
        ("no concurrency", with_config(r#"{"max_concurrency": 0}"#), 422, "invalid_config", "nonzero"),
        (
            "a model that is not there",
            with_config(r#"{"models": ["m"]}"#),
            422,
            "invalid_config",
            "there is no model `m`; upload it first",
        ),
        (
            "a GPU where there is none",
            with_config(r#"{"device": "gpu"}"#),
            422,
            "invalid_config",
            "no GPU on this machine",
        ),
        // Names and routes.
        (
            "a function's name with capitals",
            raw(&server, "Hello", hello.clone()),
            400,
            "invalid_name",
            "`Hello` is not a function's name",
        ),
        (
            "a model's name with a space",
            server.request(Method::PUT, "/v1/models/a%20b?format=onnx").body("x"),
            400,
            "invalid_name",
            "not a model's name",
        ),
        (
            "a name that climbs",
            server.request(Method::GET, "/v1/models/..%2F..%2Fetc"),
            400,
            "invalid_name",
            "not a model's name",
        ),
        (
            "a name that is not text",
            server.request(Method::GET, "/v1/functions/%FF"),
            400,
            "invalid_name",
            "Invalid UTF-8",
        ),
        (
            "a traffic split of more than 64 KiB",
            server.request(Method::PUT, "/v1/functions/hello/traffic").json(&vec!["x"; 17_000]),
            413,
            "too_large",
            "length limit exceeded",
        ),
        (
            "a function that is not there",
            server.request(Method::GET, "/v1/functions/none"),
            404,
            "not_found",
            "no function `none`",
        ),
        (
            "a call of a function that is not there",
            server.request(Method::GET, "/fn/default/none/"),
            404,
            "not_found",
            "no function `none`",
        ),
        (
            "a call of another tenant's function",
            server.request(Method::GET, "/fn/other/hello/"),
            404,
            "not_found",
            "no function `hello`",
        ),
        (
            "deleting what is not there",
            server.request(Method::DELETE, "/v1/functions/none"),
            404,
            "not_found",
            "no function `none`",
        ),
        (
            "logs of what is not there",
            server.request(Method::GET, "/v1/functions/none/logs"),
            404,
            "not_found",
            "no function `none`",
        ),
        (
            "an unknown query",
            server.request(Method::GET, "/v1/functions/hello/logs?tial=3"),
            400,
            "invalid_request",
            "tial",
        ),
        ("a route that is not there", server.request(Method::GET, "/v2"), 404, "not_found", "no such route"),
        (
            "a method that is not there",
            server.request(Method::PATCH, "/v1/functions"),
            405,
            "method_not_allowed",
            "method",
        ),
        // Models.
        ("a model without a format", model("", onnx::sum()), 400, "invalid_request", "?format=onnx"),
        (
            "a model of another format",
            model("?format=pickle", onnx::sum()),
            422,
            "unsupported_format",
            "`pickle` is not supported",
        ),
        ("an empty model", model("?format=onnx", vec![]), 422, "invalid_model", "the body is empty"),
        (
            "text as a model",
            model("?format=onnx", b"hello there".to_vec()),
            422,
            "invalid_model",
            "cannot be loaded",
        ),
        ("half a model", model("?format=onnx", broken_model), 422, "invalid_model", "cannot be loaded"),
        (
            "a model with an operator of its own",
            model("?format=onnx", onnx::with_itself("AcmeMagic", DataType::Float, &[Axis::Fixed(1)])),
            422,
            "invalid_model",
            "operator `AcmeMagic` is not known",
        ),
        (
            "a model of strings",
            model("?format=onnx", onnx::with_itself("Add", DataType::String, &[Axis::Fixed(1)])),
            422,
            "invalid_model",
            "element type string",
        ),
        (
            "a model of bf16",
            model("?format=onnx", onnx::double(DataType::Bfloat16, &[Axis::Fixed(1)])),
            422,
            "invalid_model",
            "cannot be loaded",
        ),
    ];
    let mut table = vec![];
    for (mistake, request, status, code, says) in cases {
        let answer = server.send(request).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{mistake}: {}", answer.text());
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{mistake}");
        let detail = answer.json["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{mistake}: {detail}");
        assert!(
            !detail.contains(server.data.path().to_str().unwrap()),
            "{mistake} tells of the host: {detail}"
        );
        table.push(format!("{mistake} | {status} {code} | {detail}"));
    }
    println!("{}", table.join("\n"));

    assert_eq!(server.get("/fn/default/hello/").await.text(), "Hello, world!\n");
    assert_eq!(server.get("/healthz").await.status, 200);
    let listed = server.get("/v1/functions").await.json;
    assert_eq!(listed["functions"].as_array().unwrap().len(), 1, "no mistake left a function: {listed}");
    let models = server.get("/v1/models").await.json;
    assert_eq!(models["models"].as_array().unwrap().len(), 1, "no mistake left a model: {models}");
    let blobs = std::fs::read_dir(server.data.path().join("blobs")).unwrap().count();
    assert_eq!(blobs, 2, "nor any bytes but those of what is there");
    let tmp = std::fs::read_dir(server.data.path().join("tmp")).unwrap().count();
    assert_eq!(tmp, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_of_what_nobody_read_the_connection_goes_on() {
    let (server, _) = Server::with_keys().await;
    for (path, status) in [("/fn/default/nothing/", " 401 "), ("/v1/functions/f/revisions", " 401 ")] {
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let (mut answers, mut requests) = client.split();
        let sends = async {
            let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n");
            requests.write_all(head.as_bytes()).await.unwrap();
            requests.write_all(&[0; 3_000_000]).await.unwrap();
            let next = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            requests.write_all(next.as_bytes()).await.unwrap();
        };
        let mut heard = String::new();
        let hears = async { answers.read_to_string(&mut heard).await.unwrap() };
        futures::join!(sends, hears);
        assert!(heard.contains(status) && heard.contains(" 200 OK"), "{path}: {heard}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let server = Server::start().await;
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/functions/f/revisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/wasm\r\ncontent-length: 100000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[0; 5000]).await.unwrap();
    drop(client);
    let tmp = server.data.path().join("tmp");
    weir_tests::until("the upload is gone", async || std::fs::read_dir(&tmp).unwrap().count() == 0).await;
    assert_eq!(server.get("/v1/functions").await.json, json!({ "functions": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_are_survived() {
    let server = Server::start().await;
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        client.write_all(garbage.as_bytes()).await.unwrap();
        let mut answer = vec![];
        let _ = client.read_to_end(&mut answer).await;
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    // HTTP/1.0 without a host is HTTP.
    server.deploy("echo", guests::ECHO, Value::Object(Default::default())).await;
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    client.write_all(b"GET /fn/default/echo/old HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(r#""path":"/old""#), "{answer}");
    // A host that is not text is the client's fault.
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    client
        .write_all(b"GET /fn/default/echo/ HTTP/1.1\r\nhost: \xff\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![];
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
}
