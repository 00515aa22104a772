//! Each limit, at it and over it.

use std::sync::Arc;

use futures::StreamExt;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use weir::units::Size;
use weir_tests::{Server, guests, until};

async fn trouble(config: Value) -> Arc<Server> {
    let server = Server::start().await;
    let deployed = server.deploy("trouble", guests::TROUBLE, config).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    Arc::new(server)
}

/// A call in the background.
fn spawn(server: &Arc<Server>, path: &'static str) -> tokio::task::JoinHandle<weir_tests::Answer> {
    let server = Arc::clone(server);
    tokio::spawn(async move { server.call("trouble", path, "").await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_spins_or_waits_too_long_ends_at_its_deadline() {
    let server = trouble(json!({ "request_timeout": "300ms" })).await;
    for path in ["/spin", "/sleep"] {
        let answer = server.call("trouble", path, "").await;
        assert_eq!((answer.status, answer.code()), (504, "request_timeout"), "{path}: {}", answer.text());
    }
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");
    until("their sandboxes are gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    assert_eq!(server.metric("weir_calls_total{outcome=\"timed_out\"}").await, 2.0);
    until("its log says so", async || {
        server.log("trouble").await.iter().filter(|line| line.contains("its time was up")).count() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_after_the_answer_ends_at_the_deadline_too() {
    let server = trouble(json!({ "request_timeout": "500ms" })).await;
    assert_eq!(server.call("trouble", "/after", "").await.text(), "answered");
    until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_beyond_the_limit_is_refused_to_the_guest_and_noted() {
    let server = trouble(json!({ "limits": { "memory": "16MiB" } })).await;
    let answer = server.call("trouble", "/memory", "").await;
    assert_eq!((answer.status, answer.code()), (502, "function_failed"), "{}", answer.text());
    assert!(answer.text().contains("unreachable"), "{}", answer.text());
    let log = server.log("trouble").await;
    assert!(log.iter().any(|line| line.contains("bytes of memory: the most is 16777216")), "{log:?}");
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");

    // A component that needs more than its limit from the start does not start, and says so.
    server.deploy("tiny", guests::TROUBLE, json!({ "limits": { "memory": "64KiB" } })).await;
    let answer = server.call("tiny", "/fine", "").await;
    assert_eq!((answer.status, answer.code()), (503, "start_failed"), "{}", answer.text());
    assert!(answer.text().contains("memory"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_be_as_large_as_the_limit_and_no_larger() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({ "limits": { "request_bytes": 1000 } })).await;
    assert_eq!(server.call("echo", "/", "x".repeat(1000)).await.status, 200);
    let over = server.call("echo", "/", "x".repeat(1001)).await;
    assert_eq!((over.status, over.code()), (413, "too_large"));
    assert!(over.text().contains("1001 bytes; the most for this function is 1000 bytes"), "{}", over.text());
    // A body that does not say its length beforehand.
    let chunked = |pieces: usize| {
        let pieces = (0..pieces).map(|_| Ok::<_, std::io::Error>("x".repeat(100)));
        Body::wrap_stream(futures::stream::iter(pieces))
    };
    assert_eq!(server.call("echo", "/", chunked(10)).await.status, 200);
    let over = server.call("echo", "/", chunked(11)).await;
    assert_eq!((over.status, over.code()), (413, "too_large"), "{}", over.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_beyond_the_limit_breaks_off() {
    let server = trouble(json!({ "limits": { "response_bytes": "100KiB" } })).await;
    let response = server.request(Method::GET, "/fn/default/trouble/endless").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let (mut bytes, mut broke) = (0, false);
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => bytes += piece.len(),
            Err(_) => broke = true,
        }
    }
    assert!(broke && bytes <= 100 << 10, "{bytes} bytes came through");
    until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_concurrency_wait_and_beyond_the_queue_are_refused() {
    let server = trouble(json!({ "max_concurrency": 1, "max_queue": 1, "request_timeout": "1s" })).await;
    let first = spawn(&server, "/sleep");
    until("the first runs", async || server.metric("weir_sandboxes").await == 1.0).await;
    // Of these two one waits and one is refused, whichever comes first.
    let (second, third) = (spawn(&server, "/fine"), spawn(&server, "/fine"));
    let mut answers = [second.await.unwrap(), third.await.unwrap()];
    answers.sort_by_key(|answer| answer.status);
    let refused = &answers[1];
    assert_eq!((refused.status, refused.code()), (429, "function_overloaded"), "{}", refused.text());
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.json["retryable"], true);
    assert!(refused.text().contains("1 calls running and 1 waiting"), "{}", refused.text());
    assert_eq!(first.await.unwrap().code(), "request_timeout");
    let waited = &answers[0];
    assert!(waited.text() == "fine" || waited.code() == "function_overloaded", "{}", waited.text());
    until("permits are back", async || server.call("trouble", "/fine", "").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_sandboxes_are_in_use_the_next_call_is_told() {
    let server = Arc::new(Server::with(|settings| settings.sandbox.sandboxes = 1.try_into().unwrap()).await);
    let config = json!({ "max_concurrency": 1, "startup_timeout": "100ms", "request_timeout": "2s" });
    for name in ["trouble", "other"] {
        assert_eq!(server.deploy(name, guests::TROUBLE, config.clone()).await.status, 201);
    }
    let sleeping = spawn(&server, "/sleep");
    until("it sleeps", async || server.metric("weir_sandboxes").await == 1.0).await;
    let refused = server.call("other", "/fine", "").await;
    assert_eq!((refused.status, refused.code()), (503, "server_overloaded"), "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"));
    sleeping.await.unwrap();
    until("there is room again", async || server.call("other", "/fine", "").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_log_lines_is_cut() {
    let server = trouble(json!({})).await;
    assert_eq!(server.call("trouble", "/flood", "").await.text(), "flooded");
    let log = server.log("trouble").await;
    let bytes: usize = log.iter().map(String::len).sum();
    assert!(bytes < 70 << 10, "{bytes} bytes were kept");
    assert!(
        log.last().unwrap().contains("this call has logged 64.0 KiB, the most it may"),
        "{:?}",
        log.last()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn outgoing_requests_are_denied() {
    let server = trouble(json!({})).await;
    assert!(server.call("trouble", "/outgoing", "").await.text().contains("HttpRequestDenied"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_call() {
    let server = trouble(json!({ "request_timeout": "5m" })).await;
    for path in ["/sleep", "/spin", "/endless"] {
        let response = server.request(Method::GET, &format!("/fn/default/trouble{path}")).send();
        let call = tokio::spawn(response);
        until("it runs", async || server.metric("weir_sandboxes").await == 1.0).await;
        call.abort();
        drop(call.await);
        until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_beyond_the_operators_limits_are_refused() {
    let server = Server::with(|settings| {
        settings.limits.component_bytes = Size::bytes(1000);
        settings.limits.model_bytes = Size::bytes(1000);
    })
    .await;
    let component = server.deploy("big", guests::HELLO, json!({})).await;
    assert_eq!((component.status, component.code()), (413, "too_large"), "{}", component.text());
    let model = server.put_model("big", vec![0; 1001]).await;
    assert_eq!((model.status, model.code()), (413, "too_large"), "{}", model.text());
}
