//! Each limit of a sandbox and of a call, at it and over it. Those of outgoing requests are in egress.rs, those of
//! uploads in preparation.rs, those of tenants and of what waits for a device in sharing.rs.

use std::sync::Arc;

use futures::StreamExt;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use weir::units::Size;
use weir_tests::guests::Behaviour;
use weir_tests::{Answer, Server, guests, onnx, until};

async fn trouble(config: Value) -> Arc<Server> {
    let server = Server::start().await;
    let deployed = server.deploy("trouble", guests::TROUBLE, config).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    Arc::new(server)
}

/// A call in the background.
fn spawn(server: &Arc<Server>, path: &'static str) -> tokio::task::JoinHandle<Answer> {
    let server = Arc::clone(server);
    tokio::spawn(async move { server.call("trouble", path, "").await })
}

/// What `/path=number` of `trouble` answers.
async fn at(server: &Server, path: &str, number: usize) -> Answer {
    server.call("trouble", &format!("/{path}={number}"), "").await
}

/// That a limit was met: the problem, its numbers in the answer and in the log, and the counter.
async fn assert_met(server: &Server, answer: &Answer, status: u16, code: &str, limit: &str, numbers: &str) {
    assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.text());
    assert!(answer.text().contains(numbers), "{}", answer.text());
    until("the log says so", async || {
        let log = server.log("trouble").await;
        log.iter().any(|line| line.starts_with(limit) && line.contains(numbers))
    })
    .await;
    let counter = format!("weir_limits_total{{limit=\"{limit}\"}}");
    assert!(server.metric(&counter).await >= 1.0, "{counter}");
}

/// The most of a number of `/path=` that answers `text`, found by halves below `most`.
async fn most(server: &Server, path: &str, text: &str, most: usize) -> usize {
    let (mut good, mut bad) = (0, most);
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        if at(server, path, middle).await.text() == text { good = middle } else { bad = middle }
    }
    assert!(good > 0 && bad < most, "{path}: the limit is somewhere between");
    good
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_spins_or_waits_too_long_ends_at_its_deadline() {
    let server = trouble(json!({ "request_timeout": "300ms" })).await;
    for path in ["/spin", "/sleep"] {
        let answer = server.call("trouble", path, "").await;
        assert_met(&server, &answer, 504, "request_timeout", "request_timeout", "300ms").await;
    }
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");
    until("their sandboxes are gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    assert_eq!(server.metric("weir_calls_total{outcome=\"timed_out\"}").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_after_the_answer_ends_at_the_deadline_too() {
    let server = trouble(json!({ "request_timeout": "500ms" })).await;
    assert_eq!(server.call("trouble", "/after", "").await.text(), "answered");
    until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_too_slowly_ends_at_the_deadline() {
    let server = Server::start().await;
    server.deploy("echo", guests::ECHO, json!({ "request_timeout": "300ms" })).await;
    // A byte now, and never another.
    let stalled = futures::stream::iter([Ok::<_, std::io::Error>("x")]).chain(futures::stream::pending());
    let answer = server.call("echo", "/", Body::wrap_stream(stalled)).await;
    assert_eq!((answer.status, answer.code()), (504, "request_timeout"), "{}", answer.text());
    until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_may_compute_so_long_and_wait_longer() {
    let server = trouble(json!({ "limits": { "cpu_time": "200ms" }, "request_timeout": "1m" })).await;
    // Waiting does not count, in however many pieces.
    assert_eq!(at(&server, "wait", 1000).await.text(), "waited");
    let spun = server.call("trouble", "/spin", "").await;
    assert_met(&server, &spun, 504, "cpu_limit", "limits.cpu_time", "the most is 200ms").await;
    // A reused sandbox has it anew for each call.
    let config = json!({ "limits": { "cpu_time": "200ms" }, "reuse": 1000, "max_concurrency": 1 });
    server.deploy("trouble", guests::TROUBLE, config).await;
    for _ in 0..1000 {
        assert_eq!(at(&server, "deep", 1000).await.text(), "1000");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_may_take_so_long() {
    let server = Server::start().await;
    let config = json!({ "startup_timeout": "200ms", "limits": { "cpu_time": "1m" } });
    let spins = Behaviour::StartSpins.component().bytes();
    assert_eq!(server.deploy_bytes("trouble", spins, config).await.status, 201);
    let slow = server.call("trouble", "/", "").await;
    assert_met(&server, &slow, 503, "start_timeout", "startup_timeout", "within 200ms").await;
    until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    // Computing counts from the start on. Another function: this one would keep its revision before one that cannot start.
    assert_eq!(server.delete("/v1/functions/trouble").await.status, 204);
    let config = json!({ "startup_timeout": "1m", "limits": { "cpu_time": "200ms" } });
    server.deploy_bytes("trouble", Behaviour::StartSpins.component().bytes(), config).await;
    let spun = server.call("trouble", "/", "").await;
    assert_met(&server, &spun, 504, "cpu_limit", "limits.cpu_time", "the most is 200ms").await;
    assert_eq!(
        server.deploy("trouble", guests::TROUBLE, json!({ "startup_timeout": "200ms" })).await.status,
        201
    );
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine", "one that starts in time does");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_up_to_the_limit_and_no_further() {
    let server = trouble(json!({ "limits": { "memory": "16MiB" } })).await;
    let pages = most(&server, "pages", "grown", 256).await;
    assert!(pages > 200, "its own data takes few of 256 pages, {pages} are left");
    assert_eq!(at(&server, "pages", pages + 1).await.text(), "refused");
    let over = server.call("trouble", "/memory", "").await;
    assert_met(&server, &over, 502, "memory_limit", "limits.memory", "the most is 16777216").await;
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");

    // A component that needs more than its limit from the start does not start, and says so.
    assert_eq!(server.delete("/v1/functions/trouble").await.status, 204);
    server.deploy("trouble", guests::TROUBLE, json!({ "limits": { "memory": "64KiB" } })).await;
    let over = server.call("trouble", "/fine", "").await;
    assert_met(&server, &over, 502, "memory_limit", "limits.memory", "the most is 65536").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_nodes_memory_is_used_up_the_next_call_is_told() {
    let server = Server::with(|settings| settings.sandbox.memory = Some(Size::mib(64))).await;
    let server = Arc::new(server);
    for name in ["trouble", "other"] {
        server.deploy(name, guests::TROUBLE, json!({ "request_timeout": "5m" })).await;
    }
    // One sandbox takes most of it, and keeps it while its answer is not read to its end.
    let holds = server.request(Method::GET, "/fn/default/trouble/hold=900").send().await.unwrap();
    assert_eq!(holds.status(), 200);
    assert!(server.metric("weir_memory_bytes").await > f64::from(56 << 20));
    let over = server.call("other", "/memory", "").await;
    assert_eq!((over.status, over.code()), (503, "node_memory"), "{}", over.text());
    assert!(over.text().contains("most of 64.0 MiB"), "{}", over.text());
    assert!(over.headers.contains_key("retry-after"));
    assert_eq!(over.json["retryable"], true);
    // When what is left is not enough for a sandbox to start, none does.
    let mut more = vec![];
    loop {
        let next = server.request(Method::GET, "/fn/default/trouble/hold=0").send().await.unwrap();
        if next.status() != 200 {
            break;
        }
        more.push(next);
        assert!(more.len() < 100);
    }
    let over = server.call("other", "/fine", "").await;
    assert_eq!((over.status, over.code()), (503, "node_memory"), "{}", over.text());
    assert!(server.metric("weir_limits_total{limit=\"sandbox.memory\"}").await >= 2.0);
    drop((holds, more));
    until("it is all back", async || server.metric("weir_memory_bytes").await == 0.0).await;
    assert_eq!(server.call("other", "/fine", "").await.text(), "fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sandboxes_leave_when_memory_is_short() {
    let server = Server::with(|settings| settings.sandbox.memory = Some(Size::mib(64))).await;
    for name in ["trouble", "other"] {
        let config = json!({ "reuse": 1000, "max_concurrency": 1, "idle_timeout": "1h" });
        assert_eq!(server.deploy(name, guests::TROUBLE, config).await.status, 201);
    }
    // Both in turn, on a machine that has memory for one of them; neither gives up its idle sandbox by itself.
    for _ in 0..3 {
        for name in ["trouble", "other"] {
            until("it has what it needs", async || {
                server.call(name, "/pages=600", "").await.text() == "grown"
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_devices_memory_is_used_up_the_next_model_is_told() {
    let run = async |server: &Server, name: &str| {
        let path = format!("/raw?model={name}&input=x0&type=fp32&shape=1,1000");
        server.call(name, &path, vec![0; 4_000]).await
    };
    let with = async |most: Option<u64>| {
        let server = Server::with(|settings| settings.cpu.memory = most.map(Size::bytes)).await;
        // Not the same bytes, which would be the same graph.
        for (name, seed) in [("one", 1), ("two", 2)] {
            assert_eq!(server.put_model(name, onnx::perceptron(1000, 1, seed)).await.status, 201);
            assert_eq!(server.deploy(name, guests::NN, json!({ "models": [name] })).await.status, 201);
        }
        // What is pinned makes room for nobody.
        let pinned = server.put("/v1/models/one/config", json!({ "pin": true })).await;
        assert_eq!(pinned.status, 200, "{}", pinned.text());
        assert_eq!(run(&server, "one").await.body.len(), 4_000);
        server
    };
    // What one takes, as it is planned.
    let planned = with(None).await.devices.stats().memory;
    assert!(planned >= 4_000_000, "{planned}: its weights");
    let most = planned * 2 - 1;
    let server = with(Some(most)).await;
    let over = run(&server, "two").await;
    assert!(over.text().contains(&most.to_string()), "{:.300}", over.text());
    assert_eq!(server.metric("weir_limits_total{limit=\"cpu.memory\"}").await, 1.0);
    for path in ["/v1/functions/one", "/v1/models/one"] {
        assert_eq!(server.delete(path).await.status, 204, "{path}");
    }
    until("the first has left", async || server.metric("weir_device_memory_bytes").await == 0.0).await;
    assert_eq!(run(&server, "two").await.body.len(), 4_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn table_elements_up_to_the_limit_and_no_further() {
    let server = Server::start().await;
    let grows = || Behaviour::GrowTable.component().bytes();
    assert_eq!(
        server.deploy_bytes("trouble", grows(), json!({ "limits": { "table_elements": 5000 } })).await.status,
        201
    );
    let over = server.call("trouble", "/", "").await;
    assert_met(&server, &over, 502, "table_limit", "limits.table_elements", "the most is 5000").await;
    // A component whose tables fit starts, and one element less is too few.
    let fits = async |elements: u32| {
        let config = json!({ "limits": { "table_elements": elements } });
        // A new function each time: one that has a revision that starts keeps it.
        server.delete("/v1/functions/hello").await;
        server.deploy("hello", guests::HELLO, config).await;
        server.call("hello", "/", "").await
    };
    let (mut few, mut enough) = (0, 5000);
    while few + 1 < enough {
        let middle = u32::midpoint(few, enough);
        if fits(middle).await.status == 200 { enough = middle } else { few = middle }
    }
    let over = fits(few).await;
    assert_eq!((over.status, over.code()), (502, "table_limit"), "{}", over.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_memories_and_tables_up_to_the_limit() {
    let server = Server::start().await;
    for (limit, says) in [("instances", "core instances"), ("memories", "memories"), ("tables", "tables")] {
        let fits = async |most: u32| {
            let config = json!({ "limits": { limit: most } });
            // A new function each time: one that has a revision that starts keeps it.
            server.delete("/v1/functions/hello").await;
            server.deploy("hello", guests::HELLO, config).await;
            server.call("hello", "/", "").await
        };
        let mut has = 0;
        while fits(has).await.status != 200 {
            has += 1;
            assert!(has < 32, "{limit}");
        }
        assert!(has > 0, "it has some {limit}");
        let over = fits(has - 1).await;
        assert_eq!((over.status, over.code()), (502, "instance_limit"), "{}", over.text());
        assert!(over.text().contains(&format!("more than {} {says}", has - 1)), "{}", over.text());
        let counter = format!("weir_limits_total{{limit=\"limits.{limit}\"}}");
        assert!(server.metric(&counter).await >= 1.0, "{counter}");
    }
    // What no function may have is refused at the deploy.
    for many in [Behaviour::ManyInstances, Behaviour::ManyMemories, Behaviour::ManyTables] {
        let server = Server::with(|settings| {
            let limits = &mut settings.limits;
            (limits.instances, limits.memories, limits.tables) = (40, 5, 40);
        })
        .await;
        let refused = server.deploy_bytes("many", many.component().bytes(), json!({})).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_component"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recursion_ends_at_the_stacks_end() {
    let server = trouble(json!({})).await;
    let (mut good, mut bad) = (1, 1 << 30);
    while good + 1 < bad {
        let middle = usize::midpoint(good, bad);
        if at(&server, "deep", middle).await.text() == middle.to_string() {
            good = middle
        } else {
            bad = middle
        }
    }
    assert!(good > 1000, "{good}");
    let over = at(&server, "deep", 1 << 30).await;
    assert_met(&server, &over, 502, "stack_limit", "sandbox.stack", "512.0 KiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_bytes_up_to_the_limit_and_no_more() {
    let server = trouble(json!({ "limits": { "host_bytes": "1MiB" } })).await;
    let bytes = most(&server, "tensor", "made", 2 << 20).await;
    assert!(bytes > 1000 << 10 && bytes <= 1 << 20, "{bytes}");
    let over = at(&server, "tensor", bytes + 1).await;
    assert_met(&server, &over, 502, "host_memory_limit", "limits.host_bytes", "1.0 MiB").await;
    until("all of it is back", async || server.metric("weir_host_bytes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_up_to_the_limit_and_no_more() {
    let server = trouble(json!({ "limits": { "resources": 100 } })).await;
    let held = most(&server, "handles", "held", 200).await;
    assert!(held > 20 && held < 100, "its request and answer take some, and each is two handles: {held}");
    let over = at(&server, "handles", held + 1).await;
    assert_met(&server, &over, 502, "resource_limit", "limits.resources", "100 handles").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_up_to_the_limit_and_no_more() {
    let server = trouble(json!({ "limits": { "header_bytes": "4KiB" } })).await;
    // Those that a guest makes.
    let bytes = most(&server, "headers", "sent", 8 << 10).await;
    assert!(bytes > 3 << 10 && bytes <= 4 << 10, "{bytes}");
    let over = at(&server, "headers", bytes + 1).await;
    assert_met(&server, &over, 502, "header_limit", "limits.header_bytes", "4.0 KiB").await;

    // Those of a request.
    let with = async |bytes: usize| {
        let request =
            server.request(Method::GET, "/fn/default/trouble/fine").header("x-long", "x".repeat(bytes));
        server.send(request).await
    };
    let (mut good, mut bad) = (0, 4096);
    while good + 1 < bad {
        let middle = usize::midpoint(good, bad);
        if with(middle).await.status == 200 { good = middle } else { bad = middle }
    }
    let over = with(bad).await;
    assert_eq!((over.status, over.code()), (431, "headers_too_large"), "{}", over.text());
    assert!(
        over.text().contains("the headers have 4097 bytes; the most for this function is 4.0 KiB"),
        "{}",
        over.text()
    );
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
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.request_bytes\"}").await, 2.0);
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
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.response_bytes\"}").await, 1.0);
    // An answer of just so many bytes passes.
    server.deploy("trouble", guests::TROUBLE, json!({ "limits": { "response_bytes": 4 } })).await;
    assert_eq!(server.call("trouble", "/fine", "").await.text(), "fine");
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
async fn a_caller_that_leaves_the_queue_for_a_sandbox_takes_none() {
    let server = Arc::new(Server::with(|settings| settings.sandbox.sandboxes = 1.try_into().unwrap()).await);
    for name in ["trouble", "other"] {
        let config = json!({ "startup_timeout": "1m", "request_timeout": "1m", "max_concurrency": 1 });
        assert_eq!(server.deploy(name, guests::TROUBLE, config).await.status, 201);
    }
    let sleeping = spawn(&server, "/sleep");
    until("it sleeps", async || server.metric("weir_sandboxes").await == 1.0).await;
    let waits = tokio::spawn(server.request(Method::GET, "/fn/default/other/fine").send());
    until("the other is awake", async || server.status("other").await["state"] == "ready").await;
    waits.abort();
    drop(waits.await);
    until("it has left", async || server.metric("weir_calls_total{outcome=\"cancelled\"}").await == 1.0)
        .await;
    sleeping.abort();
    drop(sleeping.await);
    until("there is room", async || server.metric("weir_sandboxes").await == 0.0).await;
    assert_eq!(server.metric("weir_sandboxes_started_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_log_lines_is_cut() {
    let server = trouble(json!({ "limits": { "log_bytes": 7400 } })).await;
    assert_eq!(at(&server, "log", 100).await.text(), "logged");
    assert_eq!(server.log("trouble").await.len(), 100, "at the limit nothing is lost");
    assert_eq!(at(&server, "log", 101).await.text(), "logged");
    let log = server.log("trouble").await;
    assert_eq!(log.len(), 201);
    assert!(log[200].contains("this call has logged 7.2 KiB, the most it may"), "{:?}", log[200]);
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.log_bytes\"}").await, 1.0);
    assert_eq!(server.call("trouble", "/flood", "").await.text(), "flooded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_may_log_so_much_per_second() {
    // So little that the time between two calls gives nothing back that matters; when it does is a unit test's.
    let server = trouble(json!({ "limits": { "log_bytes_per_second": 370 } })).await;
    assert_eq!(at(&server, "log", 5).await.text(), "logged");
    assert_eq!(server.log("trouble").await.len(), 5, "at the limit nothing is lost");
    assert_eq!(at(&server, "log", 1000).await.text(), "logged");
    let log = server.log("trouble").await;
    assert!(log.len() < 1000, "{}", log.len());
    assert!(log.iter().any(|line| line.contains("370 bytes within a second, the most it may")), "{log:?}");
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.log_bytes_per_second\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_call() {
    let server = trouble(json!({ "request_timeout": "5m", "limits": { "cpu_time": "5m" } })).await;
    for path in ["/sleep", "/spin", "/endless"] {
        let response = server.request(Method::GET, &format!("/fn/default/trouble{path}")).send();
        let call = tokio::spawn(response);
        until("it runs", async || server.metric("weir_sandboxes").await == 1.0).await;
        call.abort();
        drop(call.await);
        until("its sandbox is gone", async || server.metric("weir_sandboxes").await == 0.0).await;
    }
}
