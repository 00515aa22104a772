//! Deploys and calls: what a function sees, and what it cannot.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::{Server, guests, onnx, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_says_what_was_deployed_and_the_same_again_is_the_same_revision() {
    let server = Server::start().await;
    let bytes = std::fs::read(guests::HELLO).unwrap();
    let raw = server
        .request(Method::POST, "/v1/functions/hello/revisions")
        .header("content-type", "application/wasm");
    let first = server.send(raw.body(bytes)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.json["revision"], 1);
    assert_eq!(first.json["url"], "/fn/default/hello/");
    assert!(first.json["digest"].as_str().unwrap().starts_with("sha256:"));
    let imports = first.json["imports"].as_array().unwrap();
    assert!(
        imports.iter().any(|import| import.as_str().unwrap().starts_with("wasi:http/types@0.2")),
        "{imports:?}"
    );

    let again = server.deploy("hello", guests::HELLO, json!({})).await;
    assert_eq!((again.status, &again.json["revision"]), (200, &json!(1)));
    let other = server.deploy("hello", guests::HELLO, json!({ "env": { "A": "1" } })).await;
    assert_eq!((other.status, &other.json["revision"]), (201, &json!(2)));

    assert_eq!(server.get("/fn/default/hello").await.text(), "Hello, world!\n");
    assert_eq!(server.get("/fn/default/hello/").await.text(), "Hello, world!\n");
    let gone = server.send(server.request(Method::DELETE, "/v1/functions/hello")).await;
    assert_eq!(gone.status, 204);
    assert_eq!(server.get("/fn/default/hello/").await.code(), "not_found");
    assert_eq!(server.get("/v1/functions").await.json, json!({ "functions": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn components_of_both_http_versions_answer() {
    let server = Server::start().await;
    for (name, guest, said) in
        [("two", guests::HELLO, "Hello, world!\n"), ("three", guests::HELLO_P3, "Hello from 0.3!\n")]
    {
        let deployed = server.deploy(name, guest, json!({})).await;
        assert_eq!(deployed.status, 201, "{}", deployed.text());
        for _ in 0..3 {
            let answer = server.get(&format!("/fn/default/{name}/")).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, said));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_sees_the_request_and_its_own_environment_and_nothing_else() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({ "env": { "GREETING": "hi" } })).await;
    let request = server
        .request(Method::PATCH, "/fn/default/echo/a/b%20c?x=1&y=%2F")
        .header("x-custom", "value")
        .header("connection", "x-secret, keep-alive")
        .header("x-secret", "for the next hop only")
        .body("the body");
    let seen = server.send(request).await.json;
    assert_eq!(seen["method"], "PATCH");
    assert_eq!(seen["path"], "/a/b%20c");
    assert_eq!(seen["query"], json!([["x", "1"], ["y", "/"]]));
    assert_eq!(seen["body"], "the body");
    assert_eq!(seen["env"], json!({ "GREETING": "hi" }));
    assert_eq!(seen["files"], false);
    let headers: Vec<(String, String)> = serde_json::from_value(seen["headers"].clone()).unwrap();
    let headers: HashMap<String, String> = headers.into_iter().collect();
    assert_eq!(headers.get("x-custom").map(String::as_str), Some("value"));
    assert!(!headers.contains_key("x-secret") && !headers.contains_key("connection"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_has_a_fresh_sandbox_unless_reuse_is_asked_for() {
    let server = Server::start().await;
    server.deploy("fresh", guests::ECHO, json!({})).await;
    // One call at a time: the next one waits until the sandbox is free.
    server.deploy("reused", guests::ECHO, json!({ "reuse": 3, "max_concurrency": 1 })).await;
    let before =
        async |function: &str| server.call(function, "/", "").await.json["calls_before"].as_u64().unwrap();
    for _ in 0..4 {
        assert_eq!(before("fresh").await, 0);
    }
    let mut counts = vec![];
    for _ in 0..7 {
        counts.push(before("reused").await);
    }
    assert_eq!(counts, [0, 1, 2, 0, 1, 2, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_failed_is_not_used_again() {
    let server = Server::start().await;
    server.deploy("trouble", guests::TROUBLE, json!({ "reuse": 100, "max_concurrency": 1 })).await;
    for path in ["/trap", "/exit", "/silent", "/half"] {
        assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");
        let failed = server.request(Method::POST, &format!("/fn/default/trouble{path}")).send().await;
        if path == "/half" {
            let whole = async { failed?.bytes().await };
            assert!(whole.await.is_err(), "half an answer must not pass for a whole one");
        } else {
            assert_eq!(failed.unwrap().status(), 502, "{path}");
        }
        assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine", "after {path}");
    }
    assert!(server.metric("weir_sandboxes_started_total").await >= 5.0, "each failure ended its sandbox");
    until("all failures are counted", async || server.status("trouble").await["failures"] == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_follows_its_weights_and_can_be_rolled_back() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({ "env": { "VERSION": "1" } })).await;
    server.deploy("echo", guests::ECHO, json!({ "env": { "VERSION": "2" } })).await;
    let shares = async |calls: u32| {
        let mut shares: HashMap<String, u32> = HashMap::new();
        for _ in 0..calls {
            let seen = server.call("echo", "/", "").await.json;
            *shares.entry(seen["env"]["VERSION"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        shares
    };
    assert_eq!(shares(10).await, HashMap::from([("2".to_owned(), 10)]), "the newest has all of it");

    let set = async |traffic: Value| {
        let request =
            server.request(Method::PUT, "/v1/functions/echo/traffic").json(&json!({ "traffic": traffic }));
        server.send(request).await
    };
    assert_eq!(
        set(json!([{ "revision": 1, "weight": 3 }, { "revision": 2, "weight": 1 }])).await.status,
        200
    );
    let split = shares(100).await;
    assert!((73..=77).contains(&split["1"]), "{split:?}");
    assert_eq!(set(json!([{ "revision": 1, "weight": 1 }])).await.status, 200);
    assert_eq!(shares(10).await, HashMap::from([("1".to_owned(), 10)]));

    for (wrong, says) in [
        (json!([{ "revision": 9, "weight": 1 }]), "there is no revision 9; there are 1, 2"),
        (json!([{ "revision": 1, "weight": 0 }]), "at least one weight must be above 0"),
        (
            json!([{ "revision": 1, "weight": 1 }, { "revision": 1, "weight": 1 }]),
            "revision 1 is named twice",
        ),
        (json!([]), "at least one weight"),
    ] {
        let refused = set(wrong).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_config"));
        assert!(refused.text().contains(says), "{}", refused.text());
    }
    assert_eq!(set(json!("all")).await.code(), "invalid_config");
    assert_eq!(shares(4).await, HashMap::from([("1".to_owned(), 4)]), "refusals changed nothing");
}

/// All that the server sends before it closes the connection.
async fn raw(server: &Server, request: &str) -> String {
    let mut wire = tokio::net::TcpStream::connect(server.address).await.unwrap();
    wire.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    wire.read_to_string(&mut heard).await.unwrap();
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_answer_can_be_told_from_a_whole_one_but_in_http_1_0() {
    let server = Server::start().await;
    let config = json!({ "limits": { "response_bytes": "1MiB" } });
    server.deploy("trouble", guests::TROUBLE, config).await;
    let ask = async |version: &str| {
        let get =
            format!("GET /fn/default/trouble/endless HTTP/{version}\r\nhost: a\r\nconnection: close\r\n\r\n");
        let heard = raw(&server, &get).await.to_ascii_lowercase();
        let (head, body) = heard.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(" 200 ok") && !head.contains("content-length"), "{head}");
        assert!(body.contains('x'), "it broke off before its body");
        (head.contains("transfer-encoding: chunked"), body.to_owned())
    };
    // The last chunk, which would say that this is all, is missing.
    let (is_chunked, body) = ask("1.1").await;
    assert!(is_chunked && !body.ends_with("\r\n0\r\n\r\n"), "{body}");
    let (is_chunked, body) = ask("1.0").await;
    assert!(!is_chunked && body.bytes().all(|byte| byte == b'x'), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_becomes_log_lines_and_followers_get_them() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({})).await;
    server.call("echo", "/first", "").await;
    assert_eq!(server.log("echo").await, ["stdout of /first", "stderr of /first"]);

    let mut follow =
        server.request(Method::GET, "/v1/functions/echo/logs?follow=true&tail=1").send().await.unwrap();
    assert_eq!(follow.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut called = false;
    while !text.contains("stderr of /second") {
        text += &String::from_utf8_lossy(&follow.chunk().await.unwrap().expect("the stream stays open"));
        if !called {
            server.call("echo", "/second", "").await;
            called = true;
        }
    }
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let said: Vec<&str> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(said, ["stderr of /first", "stdout of /second", "stderr of /second"]);
    assert_eq!(lines[2]["source"], "stderr");
    assert_eq!(lines[2]["revision"], 1);

    // A server that stops lets its followers go, and does not wait out its stop timeout for them.
    let stopped = tokio::time::timeout(Duration::from_secs(20), server.stop()).await;
    assert!(stopped.is_ok());
    while follow.chunk().await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_of_another_toolchain_runs_http_and_nn() {
    let server = Server::start().await;
    let doubled = server.put_model("double", onnx::double(DataType::Float, &[onnx::Axis::Named("n")])).await;
    assert_eq!(doubled.status, 201, "{}", doubled.text());
    let config = json!({ "models": ["double"], "startup_timeout": "60s" });
    let deployed = server.deploy("python", guests::python(), config).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    let answer = server.call("python", "/", "[1, 2.5, -3]").await;
    assert_eq!(
        (answer.status, &answer.json),
        (200, &json!({ "doubled": [2.0, 5.0, -6.0] })),
        "{}",
        answer.text()
    );
    assert_eq!(server.call("python", "/", "[1, \"x\"]").await.status, 400);
}
