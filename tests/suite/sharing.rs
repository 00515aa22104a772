//! Devices and what tenants have of them: shares, quotas, queues, batches, and which graphs stay in memory.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::Axis;
use weir_tests::{Answer, Process, Server, guests, onnx, until};

/// The width of the perceptrons here.
const WIDTH: usize = 64;

fn perceptron(seed: u64) -> Vec<u8> {
    onnx::perceptron(WIDTH as i64, 1, seed)
}

/// A server with functions `one` and `two`, each with a perceptron of its name.
async fn two_models(keep_alive: Duration) -> Server {
    let server = Server::with(|settings| settings.models.keep_alive = keep_alive).await;
    for (name, seed) in [("one", 1), ("two", 2)] {
        assert_eq!(server.put_model(name, perceptron(seed)).await.status, 201);
        let config = json!({ "models": [name], "idle_timeout": "100ms" });
        assert_eq!(server.deploy(name, guests::NN, config).await.status, 201);
    }
    server
}

/// Runs the perceptron of that name on a row of zeros.
async fn run(server: &Server, name: &str) -> Answer {
    let path = format!("/raw?model={name}&input=x0&type=fp32&shape=1,{WIDTH}");
    server.call(name, &path, vec![0; WIDTH * 4]).await
}

async fn runs(server: &Server, name: &str) {
    let answer = run(server, name).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn configure(server: &Server, model: &str, config: Value) {
    let answer = server.put(&format!("/v1/models/{model}/config"), config).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn set(server: &Server, share: Value) {
    let answer = server.put("/v1/tenants/default", share).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn devices(server: &Server) -> Value {
    server.get("/v1/devices").await.json
}

/// The graphs in memory, as the server shows them.
async fn resident(server: &Server) -> Vec<Value> {
    devices(server).await["resident"].as_array().unwrap().clone()
}

async fn at_zero(server: &Server, function: &str) {
    until("the function is at zero", async || server.status(function).await["state"] == "zero").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_shares_are_applied_and_survive_a_restart() {
    let server = Server::with(|settings| settings.tenant.queue = 7).await;
    let default = json!({
        "tenant": "default", "weight": 1, "class": "critical", "queue": 7, "calls_per_second": null, "call_burst": null, "display_name": null, "state": "active",
        "device_memory": null, "gpu_memory": null, "max_concurrent_calls": null, "max_queued_calls": null,
        "reserved_sandboxes": 0, "max_functions": null, "max_models": null, "max_keys": 1000, "stored_bytes": null,
        "budget_soft": null, "budget_hard": null, "spend_soft": null, "spend_hard": null, "set": {},
        "used": {
            "functions": 0, "models": 0, "keys": 0, "stored_bytes": 0, "running_calls": 0, "queued_calls": 0, "budget": null, "spend": null,
        },
    });
    assert_eq!(server.get("/v1/tenants").await.json, json!({ "tenants": [default] }));
    assert_eq!(server.get("/v1/tenants/nobody").await.code(), "not_found");
    for (body, says) in [
        (json!({ "wait": 3 }), "unknown field `wait`"),
        (json!({ "weight": 0 }), "weight is 0; it must be 1 to 1000"),
        (json!({ "weight": 1001 }), "weight is 1001"),
        (json!({ "weight": -1 }), "weight: invalid value"),
        (json!({ "class": "urgent" }), "`urgent`"),
        (json!({ "device_memory": "much" }), "`much` is not a size"),
    ] {
        let refused = server.put("/v1/tenants/default", body).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
        assert!(refused.text().contains(says), "{} should say {says}", refused.text());
    }
    for name in ["system", "Acme"] {
        let refused = server.put(&format!("/v1/tenants/{name}"), json!({})).await;
        assert_eq!(refused.code(), "invalid_name", "{}", refused.text());
    }
    set(&server, json!({ "weight": 4, "device_memory": "1GiB" })).await;
    server.put("/v1/tenants/acme", json!({ "class": "batch", "queue": 9 })).await;

    let data = server.stop().await;
    let server = Server::on(data, Default::default()).await;
    let acme = server.get("/v1/tenants/acme").await.json;
    assert_eq!(acme["set"], json!({ "class": "batch", "queue": 9 }));
    let default = server.get("/v1/tenants/default").await.json;
    assert_eq!(default["set"], json!({ "weight": 4, "device_memory": 1 << 30 }));
    assert_eq!([&default["weight"], &default["queue"]], [4, 256], "what was not set is the default of today");
    let accounts = |devices: Value| devices["devices"][0]["memory"]["accounts"].clone();
    let account = accounts(devices(&server).await)[0].clone();
    assert_eq!([&account["tenant"], &account["quota"]], [&json!("default"), &json!(1 << 30)]);
    set(&server, json!({})).await;
    assert_eq!(accounts(devices(&server).await), json!([]), "no quota, and nothing in memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_configuration_is_checked_and_survives() {
    let server = Server::start().await;
    server.put_model("m", perceptron(1)).await;
    let default = server.get("/v1/models/m").await.json["config"].clone();
    assert_eq!([&default["max_batch"], &default["keep_alive"]], [&json!(1), &Value::Null]);
    for (body, says) in [
        (json!({ "max_batsh": 3 }), "unknown field `max_batsh`"),
        (json!({ "max_batch": 0 }), "max_batch is 0"),
        (json!({ "max_batch": 1025 }), "max_batch is 1025; the most here is 1024"),
        (json!({ "preferred_batch_sizes": [2] }), "preferred_batch_sizes has 2; each must be 1 to 1"),
        (json!({ "keep_alive": "2days" }), "keep_alive is 2days; the most here is 1day"),
        (json!({ "pin": "yes" }), "pin: invalid type"),
        (json!({ "visibility": "secret" }), "`secret`"),
    ] {
        let refused = server.put("/v1/models/m/config", body).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
        assert!(refused.text().contains(says), "{} should say {says}", refused.text());
    }
    assert_eq!(server.put("/v1/models/none/config", json!({})).await.code(), "not_found");
    let config = json!({
        "keep_alive": "5m", "host_keep_alive": "2m", "pin": true, "min_resident": "1s", "max_batch": 8, "max_queue_delay": "2ms",
        "preferred_batch_sizes": [2, 4], "padding": true, "visibility": "public",
    });
    configure(&server, "m", config.clone()).await;
    assert_eq!(server.get("/v1/models/m").await.json["config"], config);
    let anew = server.put_model("m", perceptron(2)).await;
    assert_eq!(anew.json["config"], config, "an upload of new bytes keeps it");
    let server = Server::on(server.stop().await, Default::default()).await;
    let listed = server.get("/v1/models").await.json;
    assert_eq!(listed["models"][0]["config"], config);
    assert_eq!(listed["models"][0]["visibility"], "public");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_outlives_its_function_by_its_keep_alive() {
    let server = two_models(Duration::from_secs(60)).await;
    for _ in 0..2 {
        runs(&server, "one").await;
        at_zero(&server, "one").await;
    }
    assert_eq!(server.devices.stats().loads, 1, "a function that woke again found its graph there");
    assert!(server.metric("weir_graph_hits_total").await >= 1.0);
    let graphs = resident(&server).await;
    assert_eq!(graphs.len(), 1);
    assert_eq!([&graphs[0]["model"], &graphs[0]["owner"], &graphs[0]["device"]], ["one", "default", "cpu0"]);
    assert_eq!([&graphs[0]["leases"], &graphs[0]["pinned"]], [&json!(0), &json!(false)]);
    assert!(graphs[0]["idle_ms"].is_u64() && graphs[0]["bytes"].as_u64() > Some(0), "{graphs:?}");
    assert_eq!(server.get("/v1/models/one").await.json["resident"][0]["leases"], 0);

    // What is changed holds for a graph that is there.
    configure(&server, "one", json!({ "keep_alive": "50ms" })).await;
    until("it has left", async || resident(&server).await.is_empty()).await;
    configure(&server, "one", json!({ "keep_alive": "0s", "pin": true })).await;
    runs(&server, "one").await;
    at_zero(&server, "one").await;
    assert_eq!(resident(&server).await[0]["pinned"], true, "what is pinned stays");
    configure(&server, "one", json!({ "keep_alive": "0s" })).await;
    until("it has left", async || resident(&server).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graphs_of_models_that_are_gone_are_gone() {
    let server = two_models(Duration::from_secs(60)).await;
    runs(&server, "one").await;
    configure(&server, "one", json!({ "pin": true })).await;
    let before = server.get("/v1/models/one").await.json["digest"].clone();
    assert_eq!(resident(&server).await[0]["digest"], before);
    // The same bytes under another name are the same graph, which stays while one of them is there.
    assert_eq!(server.put_model("again", perceptron(1)).await.status, 201);
    assert_eq!(server.delete("/v1/models/again").await.status, 204);
    at_zero(&server, "one").await;
    assert_eq!(resident(&server).await.len(), 1);
    server.put_model("one", perceptron(3)).await;
    until("the graph of the old bytes has left", async || resident(&server).await.is_empty()).await;
    runs(&server, "one").await;
    for path in ["/v1/functions/one", "/v1/models/one"] {
        assert_eq!(server.delete(path).await.status, 204, "{path}");
    }
    until("the deleted model's has too", async || resident(&server).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_model_is_the_systems_and_loaded_once() {
    let server = two_models(Duration::from_secs(60)).await;
    runs(&server, "one").await;
    at_zero(&server, "one").await;
    assert_eq!(resident(&server).await[0]["owner"], "default");
    configure(&server, "one", json!({ "visibility": "public" })).await;
    until("the tenant's own graph has left", async || resident(&server).await.is_empty()).await;
    // The other name has the same bytes from now on.
    server.put_model("two", perceptron(1)).await;
    configure(&server, "two", json!({ "visibility": "public" })).await;
    let loads = server.devices.stats().loads;
    for name in ["one", "two", "one"] {
        runs(&server, name).await;
    }
    assert_eq!(server.devices.stats().loads, loads + 1, "one graph, by whatever name");
    assert_eq!(resident(&server).await[0]["owner"], "system");
    let accounts = devices(&server).await["devices"][0]["memory"]["accounts"].clone();
    let of = |tenant: &str| {
        accounts.as_array().unwrap().iter().find(|account| account["tenant"] == tenant).cloned()
    };
    assert!(of("system").unwrap()["weights"].as_u64() > Some(0), "{accounts}");
    assert!(of("default").is_none_or(|account| account["weights"] == 0), "{accounts}");
    assert_eq!(server.get("/v1/models/one").await.json["resident"].as_array().unwrap().len(), 1);
    for name in ["one", "two"] {
        configure(&server, name, json!({})).await;
    }
    until("private again, it has left", async || resident(&server).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inferences_ride_together_unless_their_function_says_no() {
    let server = Arc::new(Server::start().await);
    server.put_model("m", perceptron(1)).await;
    configure(&server, "m", json!({ "max_batch": 2, "max_queue_delay": "1s" })).await;
    for (name, isolation) in [("shared", "shared"), ("apart", "dedicated-batch")] {
        let config = json!({ "models": ["m"], "isolation": isolation });
        assert_eq!(server.deploy(name, guests::NN, config).await.status, 201);
        assert_eq!(server.status(name).await["revisions"][0]["config"]["isolation"], isolation);
    }
    let two = async |function: &'static str| {
        let caller = || {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let path = format!("/raw?model=m&input=x0&type=fp32&shape=1,{WIDTH}");
                server.call(function, &path, vec![0; WIDTH * 4]).await.status
            })
        };
        let callers = [caller(), caller()];
        for caller in callers {
            assert_eq!(caller.await.unwrap(), 200);
        }
    };
    for _ in 0..10 {
        two("apart").await;
    }
    assert_eq!(server.devices.stats().batches, 0);
    until("two ride together", async || {
        two("shared").await;
        server.devices.stats().batches > 0
    })
    .await;
    assert!(server.metric("weir_batched_requests_total").await >= 2.0);
    assert!(server.metric("weir_batches_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_show_what_they_do_and_for_whom() {
    let server = Server::with(|settings| settings.cpu.lanes = Some(3.try_into().unwrap())).await;
    let before = devices(&server).await;
    let device = &before["devices"][0];
    assert_eq!([&device["device"], &device["kind"]], ["cpu0", "cpu"]);
    for (field, value) in [("lanes", 3), ("busy", 0), ("queued", 0), ("suspended", 0), ("suspensions", 0)] {
        assert_eq!(device[field], value, "{field}");
    }
    assert_eq!([&device["queued_by"], &device["device_time_ns"]], [&json!({}), &json!({})]);
    let memory = &device["memory"];
    assert!(memory["capacity"].as_u64() > Some(0) && memory["used"] == 0, "{memory}");
    let gpu = &before["gpu"];
    assert_eq!(gpu["available"], false);
    let parts = gpu["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 7, "{parts:?}");
    let missing = parts.iter().filter(|part| part["found"].is_null()).count();
    assert_eq!(gpu["missing"].as_array().unwrap().len(), missing);
    assert!(parts.iter().all(|part| part["purpose"].as_str().unwrap().ends_with('.')));

    server.put_model("m", perceptron(1)).await;
    server.deploy("m", guests::NN, json!({ "models": ["m"] })).await;
    runs(&server, "m").await;
    let after = devices(&server).await;
    assert!(after["at_ns"].as_u64() > before["at_ns"].as_u64());
    let device = &after["devices"][0];
    assert!(device["device_time_ns"]["default"].as_u64() > Some(0), "{device}");
    let account = &device["memory"]["accounts"][0];
    assert_eq!(account["tenant"], "default");
    let used = ["weights", "activations", "reserve"].iter().map(|kind| account[kind].as_u64().unwrap());
    assert_eq!(device["memory"]["used"], used.sum::<u64>(), "{device}");
    assert_eq!([&after["totals"]["loads"], &after["totals"]["inferences"]], [1, 1]);
    let seconds = server.metric("weir_tenant_device_seconds_total{device=\"cpu0\",tenant=\"default\"}").await;
    assert!(seconds > 0.0, "{seconds}");
    let labels = "device=\"cpu0\",tenant=\"default\",kind=\"weights\"";
    let weights = server.metric(&format!("weir_tenant_device_memory_bytes{{{labels}}}")).await;
    assert_eq!(account["weights"].as_u64(), Some(weights as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_use_so_much_of_the_devices_memory() {
    // Nothing stays, so that every run begins with nothing.
    let server = two_models(Duration::ZERO).await;
    let with = async |bytes: u64| {
        until("nothing is in memory", async || server.devices.stats().memory == 0).await;
        set(&server, json!({ "device_memory": bytes })).await;
        run(&server, "one").await
    };
    let (mut few, mut enough) = (1_u64, 1 << 20);
    while few + 1 < enough {
        let middle = few.midpoint(enough);
        if with(middle).await.status == 200 { enough = middle } else { few = middle }
    }
    assert!(few > WIDTH as u64 * WIDTH as u64 * 4, "{few}: its weights");
    assert_eq!(with(enough).await.status, 200);
    let over = with(few).await;
    let says = format!("of the {few} that `default` may use on the device");
    assert!(over.text().contains(&says), "{}", over.text());
    assert!(server.metric("weir_limits_total{limit=\"tenant.device_memory\"}").await >= 1.0);
    until("the log says so", async || {
        let log = server.log("one").await;
        log.iter().any(|line| line.starts_with("tenant.device_memory: ") && line.contains(&says))
    })
    .await;

    // Its own idle graphs make room, as long as they may.
    set(&server, json!({ "device_memory": enough })).await;
    configure(&server, "one", json!({ "keep_alive": "1h" })).await;
    runs(&server, "one").await;
    until("it is idle", async || resident(&server).await[0]["leases"] == 0).await;
    runs(&server, "two").await;
    assert_eq!(server.devices.stats().evictions, 1);
    assert_eq!(server.metric("weir_graph_evictions_total").await, 1.0);
    configure(&server, "one", json!({ "pin": true })).await;
    until("the other has left", async || resident(&server).await.is_empty()).await;
    runs(&server, "one").await;
    assert!(run(&server, "two").await.text().contains("that `default` may use on the device"));
    set(&server, json!({})).await;
    runs(&server, "two").await;
}

/// A server with one lane, and functions `nn` and, with `config`, `other`.
async fn one_lane(queue: usize, config: Value) -> Arc<Server> {
    let server = Server::with(|settings| {
        settings.cpu.lanes = Some(1.try_into().unwrap());
        settings.cpu.queue = queue;
    })
    .await;
    server.put_model("slow", onnx::slow(256, 2000)).await;
    server.put_model("fast", onnx::double(DataType::Float, &[Axis::Fixed(1)])).await;
    let mut other = json!({ "models": ["slow", "fast"], "request_timeout": "5m" });
    assert_eq!(server.deploy("nn", guests::NN, other.clone()).await.status, 201);
    other.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    assert_eq!(server.deploy("other", guests::NN, other).await.status, 201);
    Arc::new(server)
}

fn slow_input() -> Value {
    json!([{ "name": "x0", "type": "fp32", "shape": [256, 256], "data": vec![0; 256 * 256 * 4] }])
}

/// Runs the slow model again and again, until aborted.
fn keep_busy(server: &Arc<Server>) -> JoinHandle<()> {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let body = json!({ "model": "slow", "inputs": slow_input(), "times": 1_000_000 }).to_string();
        server.call("nn", "/run", body).await;
    })
}

/// Runs the fast model in function `other`.
async fn fast(server: &Server) -> Value {
    let inputs = json!([{ "name": "x", "type": "fp32", "shape": [1], "data": [0, 0, 0, 0] }]);
    server.run("other", "fast", inputs).await
}

/// That the fast model is refused sooner or later, with these words, and that the limit's counter tells.
async fn is_refused(server: &Server, says: &str, limit: &str) {
    until("it is refused", async || {
        let answer = fast(server).await;
        answer["code"] == "ErrorCode::Timeout" && answer["error"].as_str().unwrap().contains(says)
    })
    .await;
    assert!(server.metric(&format!("weir_limits_total{{limit=\"{limit}\"}}")).await >= 1.0, "{limit}");
}

async fn stop_all(busy: Vec<JoinHandle<()>>, server: &Server) {
    for busy in busy {
        busy.abort();
        drop(busy.await);
    }
    until("it runs again", async || fast(server).await["ok"].is_array()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_inferences_may_wait_for_the_device() {
    let server = one_lane(1, json!({})).await;
    let busy = vec![keep_busy(&server), keep_busy(&server)];
    until("one runs, one waits", async || {
        let device = &devices(&server).await["devices"][0];
        device["busy"] == 1 && device["queued"] == 1 && device["queued_by"]["default"] == 1
    })
    .await;
    is_refused(&server, "device `cpu0` has 1 jobs waiting, the most it may have", "cpu.queue").await;
    stop_all(busy, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_inferences_of_a_tenant_may_wait() {
    let server = one_lane(1000, json!({})).await;
    set(&server, json!({ "queue": 1 })).await;
    let busy = vec![keep_busy(&server), keep_busy(&server)];
    until("one waits", async || server.devices.stats().devices[0].queued == 1).await;
    is_refused(&server, "`default` has 1 jobs waiting for device `cpu0`", "tenant.queue").await;
    stop_all(busy, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_may_wait_so_long() {
    let server = one_lane(1000, json!({ "queue_timeout": "50ms" })).await;
    assert_eq!(server.status("other").await["revisions"][0]["config"]["queue_timeout"], "50ms");
    assert!(fast(&server).await["ok"].is_array(), "one that waits for nothing runs");
    let busy = vec![keep_busy(&server)];
    until("the lane is held", async || server.devices.stats().devices[0].busy == 1).await;
    is_refused(&server, "no lane was free for the job in 50.0 ms", "queue_timeout").await;
    stop_all(busy, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_may_take_so_long() {
    let server = one_lane(1000, json!({ "inference_timeout": "300ms" })).await;
    assert!(fast(&server).await["ok"].is_array(), "one that is soon done is done");
    let slow = server.run("other", "slow", slow_input()).await;
    assert_eq!(slow["code"], "ErrorCode::Timeout", "{slow}");
    assert!(slow["error"].as_str().unwrap().contains("the deadline passed"), "{slow}");
    assert_eq!(server.metric("weir_limits_total{limit=\"inference_timeout\"}").await, 1.0);
    until("the log says so", async || {
        server.log("other").await.iter().any(|line| line.starts_with("inference_timeout: "))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_and_sets_all_of_it_from_the_command_line() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let command = async |arguments: &[&str]| {
        let output = server.command(arguments).await;
        let [said, complained] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), said, complained)
    };
    let says = async |arguments: &[&str]| {
        let (code, said, complained) = command(arguments).await;
        assert_eq!(code, Some(0), "{arguments:?}: {complained}");
        said
    };
    let json = async |arguments: &[&str]| -> Value { serde_json::from_str(&says(arguments).await).unwrap() };

    let listed = says(&["tenants"]).await;
    assert!(listed.contains("DEVICE MEMORY") && listed.contains("default"), "{listed}");
    let made = says(&["tenants", "set", "acme", "--weight", "4", "--device-memory", "1GiB"]).await;
    assert!(made.starts_with("acme is a new tenant\n"), "{made}");
    let set = says(&["tenants", "set", "acme", "--weight", "4"]).await;
    assert!(set.starts_with("acme was there, and is changed\n"), "{set}");
    let acme = json(&["tenants", "set", "acme", "--class", "batch", "--queue", "9", "--json"]).await;
    let all = json!({ "weight": 4, "class": "batch", "queue": 9, "device_memory": 1 << 30 });
    assert_eq!(acme["set"], all, "what is not said stays");
    let acme = json(&["tenants", "set", "acme", "--reset", "--json"]).await;
    assert_eq!(acme["set"], json!({}));
    let (code, _, complained) = command(&["tenants", "set", "acme", "--weight", "0"]).await;
    assert_eq!(code, Some(1));
    assert!(complained.contains("weight is 0; it must be 1 to 1000 (invalid_config)"), "{complained}");

    let file = data.path().join("m.onnx");
    std::fs::write(&file, perceptron(1)).unwrap();
    says(&["models", "put", "m", file.to_str().unwrap()]).await;
    says(&["models", "configure", "m", "--max-batch", "8", "--preferred-batch-sizes", "2,4", "--pin"]).await;
    let shown = says(&["models", "configure", "m", "--keep-alive", "5m", "--max-queue-delay", "2ms"]).await;
    for line in ["pin = true", "max_batch = 8", "preferred_batch_sizes = [2,4]", "keep_alive = 5m"] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(shown, says(&["models", "show", "m"]).await);
    let unpinned = json(&["models", "configure", "m", "--pin=false", "--json"]).await;
    assert_eq!([&unpinned["config"]["pin"], &unpinned["config"]["max_batch"]], [&json!(false), &json!(8)]);
    let reset = says(&["models", "configure", "m", "--reset"]).await;
    assert!(reset.contains("max_batch = 1") && reset.contains("keep_alive = the operator's"), "{reset}");
    let (code, _, complained) = command(&["models", "configure", "m", "--padding"]).await;
    assert_eq!(code, Some(1), "{complained}");
    assert!(complained.contains("padding is true"), "{complained}");

    says(&["deploy", "m", guests::NN, "--model", "m"]).await;
    let path = format!("/raw?model=m&input=x0&type=fp32&shape=1,{WIDTH}");
    let input = data.path().join("input");
    std::fs::write(&input, vec![0; WIDTH * 4]).unwrap();
    says(&["call", "m", &path, "--include", "--file", input.to_str().unwrap(), "-H", "x-a: b", "-X", "POST"])
        .await;
    let shown = says(&["devices"]).await;
    for part in [
        "cpu0 (cpu)",
        "lanes      0 of",
        "0 waiting",
        "default",
        "GRAPH",
        "gpu        none: this machine lacks",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(json(&["devices", "--json"]).await["devices"][0]["device"], "cpu0");
    let top = says(&["top", "--once", "--interval", "50ms"]).await;
    for part in ["DEVICE", "cpu0", "SHARE", "default", "GRAPH"] {
        assert!(top.contains(part), "{part} in {top}");
    }
    // What is not a terminal gets two looks' difference, not a film.
    let between = json(&["top", "--interval", "50ms", "--json"]).await;
    assert!(between["elapsed_ns"].as_u64() >= Some(50_000_000), "{between}");
    assert_eq!(between["devices"][0]["tenants"][0]["tenant"], "default");
    assert_eq!(command(&["top", "--interval", "0s"]).await.0, Some(2));
    server.kill().await;
}
