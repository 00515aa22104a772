//! A server that is told to stop, or to read its settings again.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use weir_tests::{Client, Heard, Process, guests, until};

async fn deploy(client: &Client, name: &str, guest: &str) {
    let deployed = client.deploy(name, std::fs::read(guest).unwrap(), &json!({})).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
}

/// A call that runs until it is sent all of its body.
async fn call_under_way(client: &Client) -> (mpsc::Sender<Result<Bytes, std::io::Error>>, JoinHandle<Heard>) {
    let (sends, body) = mpsc::channel(1);
    let body = reqwest::Body::wrap_stream(ReceiverStream::new(body));
    let (caller, call) = (client.clone(), client.call("echo", "/", body));
    let call = tokio::spawn(async move { caller.hear(call).await });
    until("the call runs", async || client.metric("weir_sandboxes").await == 1.0).await;
    (sends, call)
}

fn wal(data: &Path) -> bool {
    data.join("weir.db-wal").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_says_so_first_and_serves_on_until_it_is_told_again() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), "stop_delay = \"1h\"\nstop_timeout = \"1h\"").await;
    let client = Client::new(&server.url);
    deploy(&client, "echo", guests::ECHO).await;
    let (_sends, call) = call_under_way(&client).await;
    assert_eq!(client.get("/readyz").await.status, 200);

    server.signal("TERM");
    until("it is not ready", async || client.get("/readyz").await.status == 503).await;
    assert_eq!(client.get("/readyz").await.code(), "stopping");
    assert_eq!(client.get("/healthz").await.status, 200);
    let served = client.send(client.call("echo", "/", "here")).await;
    assert_eq!((served.status, &served.json["body"]), (200, &json!("here")));
    assert!(!call.is_finished());

    server.signal("TERM");
    assert_eq!(server.ends().await, Some(0));
    assert!(matches!(call.await.unwrap(), Heard::BrokenOff { status: None, .. }));
    assert!(!wal(data.path()), "the database is whole in its file");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_way_end_while_no_more_are_taken() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), "stop_timeout = \"1h\"").await;
    let client = Client::new(&server.url);
    deploy(&client, "echo", guests::ECHO).await;
    let (sends, call) = call_under_way(&client).await;

    server.signal("INT");
    let refused = async || {
        matches!(Client::new(&server.url).hear(client.call("echo", "/", "")).await, Heard::Nothing(_))
    };
    until("no more connections are taken", refused).await;
    assert!(!call.is_finished());
    sends.send(Ok("all of it".into())).await.unwrap();
    drop(sends);
    let Heard::Whole(answer) = call.await.unwrap() else { panic!("the call was cut") };
    assert_eq!((answer.status, &answer.json["body"]), (200, &json!("all of it")));
    assert_eq!(answer.headers["connection"], "close");
    assert_eq!(server.ends().await, Some(0));
    assert!(!wal(data.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_time_is_cut_and_nothing_is_lost() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), "stop_timeout = \"100ms\"").await;
    let client = Client::new(&server.url);
    deploy(&client, "echo", guests::ECHO).await;
    let (_sends, call) = call_under_way(&client).await;
    server.signal("TERM");
    server.says("are cut", 1).await;
    assert_eq!(server.ends().await, Some(0));
    assert!(matches!(call.await.unwrap(), Heard::BrokenOff { status: None, .. }));
    assert!(!wal(data.path()));

    let server = Process::serve(data.path()).await;
    let client = Client::new(&server.url);
    assert_eq!(client.send(client.call("echo", "/", "again")).await.json["body"], "again");
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_never_came_to_be_holds_up_no_stop() {
    let data = tempfile::tempdir().unwrap();
    let settings = "stop_timeout = \"1h\"\n[http]\nhead_timeout = \"1h\"";
    let server = Process::serve_with_keys_and(data.path(), settings).await;
    let files = server.files();
    let _silent = tokio::net::TcpStream::connect(server.url.trim_start_matches("https://")).await.unwrap();
    until("the connection is taken", async || server.files() > files).await;
    server.signal("TERM");
    let ended = tokio::time::timeout(Duration::from_secs(60), server.ends()).await;
    assert_eq!(ended, Ok(Some(0)), "it waits for a client that says nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_read_again_whole_or_not_at_all() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), "[tenant]\nqueue = 7").await;
    let write = |text: &str| std::fs::write(data.path().join("weir.toml"), text).unwrap();
    let client = Client::new(&server.url);
    deploy(&client, "echo", guests::ECHO).await;
    let held = client.put("/v1/tenants/held", &json!({ "queue": 3 })).await;
    assert_eq!(held.status, 201, "{}", held.text());
    let queue = async |tenant: &str| -> Value {
        client.get(&format!("/v1/tenants/{tenant}")).await.json["queue"].clone()
    };
    assert_eq!(queue("default").await, 7);
    let call = async || client.send(client.call("echo", "/", "")).await;
    for _ in 0..3 {
        assert_eq!(call().await.status, 200, "there is no rate");
    }

    write(
        "[tenant]\nqueue = 8\ncalls_per_second = 1\ncall_burst = 1\n[cpu]\nqueue = 99\n[limits]\nmax_batch = 4",
    );
    server.signal("HUP");
    server.says("the configuration file was read again", 1).await;
    server.says("changed: tenant.queue: 7 -> 8", 1).await;
    server.says("holds from the next start on: cpu.queue: 1024 -> 99", 1).await;
    assert_eq!(
        (queue("default").await, queue("held").await),
        (json!(8), json!(3)),
        "what was set for a tenant stays"
    );
    assert_eq!(call().await.status, 200);
    // A steady flood is refused sooner or later, whatever the time between two calls.
    until("the rate holds", async || call().await.code() == "rate_limited").await;
    let batch = json!({ "max_batch": 5 });
    let model =
        client.put_model("m", weir_tests::onnx::double(FLOAT, &[weir_tests::onnx::Axis::Fixed(1)])).await;
    assert_eq!(model.status, 201, "{}", model.text());
    let refused = client.put("/v1/models/m/config", &batch).await;
    assert!(refused.text().contains("the most here is 4"), "{}", refused.text());

    for (wrong, reason) in [
        ("[tenant]\nqueue = 9\nqueeu = 9", "queeu"),
        ("[tenant]\nqueue = 9\nweight = 0", "tenant.weight is 0"),
        ("stop_timeout = 5", "stop_timeout"),
    ] {
        write(wrong);
        server.signal("HUP");
        server.says(reason, 1).await;
    }
    server.says("the configuration file is refused; nothing has changed", 3).await;
    std::fs::remove_file(data.path().join("weir.toml")).unwrap();
    server.signal("HUP");
    server.says("the configuration file is refused; nothing has changed", 4).await;
    assert_eq!(queue("default").await, 8);

    write("[tenant]\nqueue = 10");
    server.signal("HUP");
    server.says("the configuration file was read again", 2).await;
    assert_eq!(queue("default").await, 10);
    for _ in 0..3 {
        assert_eq!(call().await.status, 200, "there is no rate again");
    }
    assert_eq!(client.put("/v1/models/m/config", &batch).await.status, 200);
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graphs_leave_memory_as_the_settings_say_now() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_with(data.path(), "[models]\nkeep_alive = \"1h\"").await;
    let client = Client::new(&server.url);
    let model = weir_tests::onnx::double(FLOAT, &[weir_tests::onnx::Axis::Fixed(1)]);
    assert_eq!(client.put_model("m", model).await.status, 201);
    let config = json!({ "models": ["m"], "idle_timeout": "50ms" });
    let nn = client.deploy("nn", std::fs::read(guests::NN).unwrap(), &config).await;
    assert_eq!(nn.status, 201, "{}", nn.text());
    let raw = client.call("nn", "/raw?model=m&input=x&type=fp32&shape=1", 1.5_f32.to_le_bytes().to_vec());
    assert_eq!(client.send(raw).await.body[..], 3.0_f32.to_le_bytes());
    until("the function sleeps", async || client.get("/v1/functions/nn").await.json["state"] == "zero").await;
    assert_eq!(client.metric("weir_resident_graphs").await, 1.0);
    std::fs::write(data.path().join("weir.toml"), "[models]\nkeep_alive = \"10ms\"").unwrap();
    server.signal("HUP");
    until("the graph leaves memory", async || client.metric("weir_resident_graphs").await == 0.0).await;
    server.kill().await;
}

const FLOAT: tract_onnx::pb::tensor_proto::DataType = tract_onnx::pb::tensor_proto::DataType::Float;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_there_is_nothing_to_read_again() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    server.signal("HUP");
    server.says("there is none: use --config", 1).await;
    assert_eq!(Client::new(&server.url).get("/readyz").await.status, 200);
    server.kill().await;
}
