//! From zero to awake and back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::{Server, guests, onnx, until};

/// Whether any file below the server's artifacts is mapped into this process.
fn mapped(server: &Server) -> bool {
    let artifacts = server.data.path().join("artifacts");
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(artifacts.to_str().unwrap())
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_of_a_cold_function_get_answers_from_one_load() {
    // Long enough for no caller to find the graph gone between two others.
    let keep_alive = Duration::from_secs(1);
    let server = Arc::new(Server::with(|settings| settings.models.keep_alive = keep_alive).await);
    server.put_model("double", onnx::double(DataType::Float, &[onnx::Axis::Fixed(2)])).await;
    let config = json!({ "models": ["double"], "idle_timeout": "300ms", "max_concurrency": 50 });
    assert_eq!(server.deploy("nn", guests::NN, config).await.status, 201);
    assert_eq!(server.status("nn").await["state"], "zero");
    assert!(!mapped(&server) && server.devices.stats().resident.is_empty());

    for round in 1..=2 {
        let inputs = json!([{ "name": "x", "type": "fp32", "shape": [2], "data": floats(&[1.5, -2.0]) }]);
        let callers: Vec<_> = (0..100)
            .map(|_| {
                let (server, inputs) = (Arc::clone(&server), inputs.clone());
                tokio::spawn(async move { server.run("nn", "double", inputs).await })
            })
            .collect();
        for caller in callers {
            let answer = caller.await.unwrap();
            assert_eq!(answer["ok"][0]["data"], json!(floats(&[3.0, -4.0])), "{answer}");
        }
        let (status, stats) = (server.status("nn").await, server.devices.stats());
        assert_eq!(status["state"], "ready");
        assert_eq!(status["cold_starts"], round, "one code load for each time it woke");
        assert_eq!(stats.loads, round, "one graph load for each time it woke");
        assert_eq!(status["failures"], 0);
        assert_eq!(stats.inferences, round * 100);
        let last = &status["revisions"][0]["last_cold_start"];
        for phase in ["code_ms", "graph_ms", "sandbox_ms"] {
            assert!(last[phase].as_f64().unwrap() > 0.0, "{phase} is shown: {last}");
        }

        until("the function is at zero", async || server.status("nn").await["state"] == "zero").await;
        until("its code is unmapped", async || !mapped(&server)).await;
        until("its graph has left too", async || server.devices.stats().resident.is_empty()).await;
        assert_eq!(server.devices.stats().unloads, round);
        assert_eq!(server.metric("weir_sandboxes").await, 0.0);
        assert_eq!(server.metric("weir_awake_revisions").await, 0.0);
    }
    for phase in ["code", "graph", "sandbox"] {
        let count = server.metric(&format!("weir_cold_start_seconds_count{{phase=\"{phase}\"}}")).await;
        assert_eq!(count, 2.0, "{phase} is in the histogram, once for each time it woke");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reused_sandboxes_leave_with_their_function() {
    let server = Server::start().await;
    server
        .deploy("echo", guests::ECHO, json!({ "reuse": 1000, "max_concurrency": 1, "idle_timeout": "200ms" }))
        .await;
    for _ in 0..3 {
        assert_eq!(server.call("echo", "/", "").await.status, 200);
    }
    assert_eq!(server.metric("weir_sandboxes").await, 1.0);
    until("the sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    until("the function is at zero", async || server.status("echo").await["state"] == "zero").await;
    until("its code is unmapped", async || !mapped(&server)).await;
    assert_eq!(server.call("echo", "/", "").await.json["calls_before"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_makes_room_for_another_function() {
    let server = Server::with(|settings| settings.sandbox.sandboxes = 1.try_into().unwrap()).await;
    for name in ["one", "other"] {
        let config = json!({ "reuse": 1000, "max_concurrency": 1, "idle_timeout": "1h" });
        assert_eq!(server.deploy(name, guests::ECHO, config).await.status, 201);
    }
    // Both in turn on a machine with one sandbox, which neither has given up.
    for _ in 0..3 {
        for name in ["one", "other"] {
            let answer = server.call(name, "/", "").await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        }
    }
    assert_eq!(server.metric("weir_sandboxes").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_do_not_end_a_reused_sandbox() {
    let server = Server::start().await;
    server.deploy("hello", guests::HELLO, json!({ "reuse": 1000, "max_concurrency": 1 })).await;
    for _ in 0..5 {
        let head = server.send(server.request(reqwest::Method::HEAD, "/fn/default/hello/")).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
    }
    assert_eq!(server.metric("weir_sandboxes_started_total").await, 1.0);
    assert_eq!(server.status("hello").await["failures"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_keeps_its_function_awake() {
    let server = Arc::new(Server::start().await);
    let config = json!({ "idle_timeout": "50ms", "request_timeout": "2s" });
    server.deploy("trouble", guests::TROUBLE, config).await;
    let sleeping = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.call("trouble", "/sleep", "").await.code().to_owned() })
    };
    until("the call runs", async || server.metric("weir_sandboxes").await == 1.0).await;
    // Another function's whole life, from deploy to zero, passes meanwhile.
    server.deploy("other", guests::HELLO, json!({ "idle_timeout": "50ms" })).await;
    server.get("/fn/default/other/").await;
    until("the other is at zero", async || server.status("other").await["state"] == "zero").await;
    assert_eq!(server.status("trouble").await["state"], "ready");
    assert_eq!(sleeping.await.unwrap(), "request_timeout");
    until("it is at zero", async || server.status("trouble").await["state"] == "zero").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_function_leaves_nothing() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({ "idle_timeout": "1h" })).await;
    server.call("echo", "/", "").await;
    assert!(mapped(&server));
    let deleted = server.send(server.request(reqwest::Method::DELETE, "/v1/functions/echo")).await;
    assert_eq!(deleted.status, 204);
    until("its code is unmapped", async || !mapped(&server)).await;
    let files = |folder: &str| walk(&server.data.path().join(folder));
    for folder in ["blobs", "artifacts", "index", "logs", "tmp"] {
        until("its files are gone", async || files(folder) == 0).await;
    }
}

/// How many files are below a folder.
fn walk(folder: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { 1 }).sum()
}
