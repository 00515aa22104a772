//! Uploads are opened in processes that may die: what that means to the uploader, and to nobody else. And what uploads and
//! connections may take.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tract_onnx::pb::tensor_proto::DataType;
use weir::units::Size;
use weir_tests::onnx::{self, Axis};
use weir_tests::{Process, Server, guests, until};

#[tokio::test(flavor = "multi_thread")]
async fn uploads_beyond_the_operators_limits_are_refused() {
    let hello = fs::read(guests::HELLO).unwrap();
    let model = onnx::double(DataType::Float, &[Axis::Fixed(2)]);
    let (component_bytes, model_bytes) = (hello.len() as u64, model.len() as u64);
    let server = Server::with(|settings| {
        settings.limits.component_bytes = Size::bytes(component_bytes);
        settings.limits.model_bytes = Size::bytes(model_bytes);
    })
    .await;
    assert_eq!(server.deploy_bytes("hello", hello.clone(), json!({})).await.status, 201);
    assert_eq!(server.put_model("double", model.clone()).await.status, 201);
    let component = server.deploy_bytes("big", [hello.as_slice(), b"\0"].concat(), json!({})).await;
    assert_eq!((component.status, component.code()), (413, "too_large"), "{}", component.text());
    let model = server.put_model("big", [model.as_slice(), b"\0"].concat()).await;
    assert_eq!((model.status, model.code()), (413, "too_large"), "{}", model.text());
    for limit in ["component_bytes", "model_bytes"] {
        assert_eq!(server.metric(&format!("weir_limits_total{{limit=\"limits.{limit}\"}}")).await, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_takes_too_long_to_prepare_is_refused() {
    let server = Server::with(|settings| settings.preparation.time = Duration::from_millis(1)).await;
    let refused = server.deploy("hello", guests::HELLO, json!({})).await;
    assert_eq!((refused.status, refused.code()), (422, "preparation_timeout"), "{}", refused.text());
    assert!(refused.text().contains("longer than 1ms"), "{}", refused.text());
    let refused = server.put_model("double", onnx::double(DataType::Float, &[Axis::Fixed(2)])).await;
    assert_eq!((refused.status, refused.code()), (422, "preparation_timeout"), "{}", refused.text());
    assert_eq!(server.metric("weir_limits_total{limit=\"preparation.time\"}").await, 2.0);
    assert_eq!(server.get("/v1/functions").await.json, json!({ "functions": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_takes_too_much_memory_to_prepare_is_refused() {
    let server = Server::with(|settings| settings.preparation.memory = Size::mib(400)).await;
    assert_eq!(server.deploy("hello", guests::HELLO, json!({})).await.status, 201, "a small one fits");
    // 600 MB of weights that the engine makes while it optimises.
    let refused = server.put_model("large", onnx::filled(&[150_000_000])).await;
    assert_eq!((refused.status, refused.code()), (422, "preparation_memory"), "{}", refused.text());
    assert!(refused.text().contains("more than 400.0 MiB"), "{}", refused.text());
    assert_eq!(server.metric("weir_limits_total{limit=\"preparation.memory\"}").await, 1.0);
    assert_eq!(server.get("/fn/default/hello/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_may_plan_so_much_memory() {
    // Two tensors of 4 MB at one time, x and y.
    let shape = [Axis::Fixed(1_000_000)];
    let model = onnx::double(DataType::Float, &shape);
    let fits = async |bytes: u64| {
        let server = Server::with(|settings| settings.limits.model_memory = Size::bytes(bytes)).await;
        (server.put_model("m", model.clone()).await, server)
    };
    assert_eq!(fits(8_000_000).await.0.status, 201);
    let (refused, server) = fits(7_999_999).await;
    assert_eq!((refused.status, refused.code()), (422, "model_memory"), "{}", refused.text());
    assert!(refused.text().contains("8000000") && refused.text().contains("7999999"), "{}", refused.text());
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.model_memory\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_cost_so_much() {
    // 100 × 100 × 100 multiply-adds.
    let fits = async |cost: u64| {
        let server = Server::with(|settings| settings.limits.operator_cost = cost).await;
        (server.put_model("m", onnx::slow(100, 1)).await, server)
    };
    assert_eq!(fits(1_000_000).await.0.status, 201);
    let (refused, server) = fits(999_999).await;
    assert_eq!((refused.status, refused.code()), (422, "operator_cost"), "{}", refused.text());
    assert!(refused.text().contains("1000000") && refused.text().contains("999999"), "{}", refused.text());
    assert_eq!(server.metric("weir_limits_total{limit=\"limits.operator_cost\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_was_changed_is_made_again() {
    let server = Server::start().await;
    server.deploy("hello", guests::HELLO, json!({ "idle_timeout": "50ms" })).await;
    let folder = fs::read_dir(server.data.path().join("artifacts")).unwrap().next().unwrap().unwrap().path();
    let file = |end: &str| {
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == end)).unwrap()
    };
    let whole = fs::read(file("cwasm")).unwrap();
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 0x80;
    for bytes in [changed.as_slice(), &whole[..whole.len() / 2], b"", b"\x7fELF"] {
        // In place of the file, not into it: what is mapped may still be in use.
        let new = folder.join("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(&new, file("cwasm")).unwrap();
        let answer = server.get("/fn/default/hello/").await;
        assert_eq!(answer.text(), "Hello, world!\n");
        assert_eq!(fs::read(file("cwasm")).unwrap().len(), whole.len(), "it was made again");
        until("it is at zero", async || server.status("hello").await["state"] == "zero").await;
    }
    fs::remove_file(file("mac")).unwrap();
    assert_eq!(server.get("/fn/default/hello/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_refused_component_at_once_is_refused_to_all() {
    let server = Server::with(|settings| settings.preparation.at_once = 4.try_into().unwrap()).await;
    // It compiles, and is refused when it is linked; what was compiled is removed then.
    let text = "(component (import \"acme:gpu/direct\" (instance (export \"go\" (func)))))";
    let component = wat::parse_str(text).unwrap();
    let deploys = (0..16).map(|_| server.deploy_bytes("f", component.clone(), json!({})));
    for refused in futures::future::join_all(deploys).await {
        assert_eq!((refused.status, refused.code()), (422, "invalid_component"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_beyond_their_number_are_told() {
    let server = Server::with(|settings| settings.preparation.uploads = 1.try_into().unwrap()).await;
    // One upload that has begun and does not go on.
    let stalled = futures::stream::iter([Ok::<_, std::io::Error>("x")]).chain(futures::stream::pending());
    let upload = server.request(reqwest::Method::PUT, "/v1/models/m?format=onnx");
    let upload = tokio::spawn(upload.body(reqwest::Body::wrap_stream(stalled)).send());
    until("it is under way", async || fs::read_dir(server.data.path().join("tmp")).unwrap().count() == 1)
        .await;
    let refused = server.deploy("hello", guests::HELLO, json!({})).await;
    assert_eq!((refused.status, refused.code()), (503, "server_overloaded"), "{}", refused.text());
    assert!(refused.text().contains("1 uploads are under way"), "{}", refused.text());
    upload.abort();
    drop(upload.await);
    until("there is a place again", async || {
        server.deploy("hello", guests::HELLO, json!({})).await.status == 201
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_may_take_so_long() {
    let server = Server::with(|settings| settings.http.upload_timeout = Duration::from_millis(200)).await;
    let stalled = || futures::stream::iter([Ok::<_, std::io::Error>("x")]).chain(futures::stream::pending());
    for (method, path) in [
        ("PUT", "/v1/models/m?format=onnx"),
        ("POST", "/v1/functions/f/revisions"),
        ("PUT", "/v1/functions/f/traffic"),
    ] {
        let request = server.request(method.parse().unwrap(), path);
        let kind = if path.ends_with("traffic") { "application/json" } else { "application/wasm" };
        let request = request.header("content-type", kind).body(reqwest::Body::wrap_stream(stalled()));
        let refused = server.send(request).await;
        assert_eq!((refused.status, refused.code()), (408, "upload_timeout"), "{path}: {}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_sends_nothing_is_closed() {
    let server = Server::with(|settings| settings.http.head_timeout = Duration::from_millis(200)).await;
    for sent in ["", "GET /healthz HTTP/1.1\r\nhost:"] {
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = vec![];
        client.read_to_end(&mut answer).await.unwrap();
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let long = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(65 << 10));
    let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
    // It may be cut off while it sends.
    let _ = client.write_all(long.as_bytes()).await;
    let mut answer = vec![];
    let _ = client.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_their_number_wait() {
    let server = Server::with(|settings| settings.http.connections = 2.try_into().unwrap()).await;
    let connect = async || tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut first, _second) = (connect().await, connect().await);
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let mut third = connect().await;
    third.write_all(ask("/healthz").as_bytes()).await.unwrap();
    // The third is there, and is not among those that are served until one of the others ends.
    let mut answer = String::new();
    first.write_all(ask("/metrics").as_bytes()).await.unwrap();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\nweir_connections 2\n"), "{answer}");
    answer.clear();
    third.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_opens_an_upload_has_little_left() {
    // It waits for its upload, and has by then given up what it does not need. Its starter has left it a file.
    let order = json!({
        "work": { "Component": { "stack": 1 << 19 } }, "memory": 1_u64 << 30, "seconds": 7,
    });
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", "exec 9</dev/null; exec \"$0\" prepare \"$1\""]).arg(Process::binary("weir"));
    let mut child = shell
        .arg(order.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let of = |what: &str| format!("/proc/{}/{what}", child.id().unwrap());
    let limit = |name: &str| {
        let limits = fs::read_to_string(of("limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.split_whitespace().next().unwrap().to_owned()
    };
    until("it has given up the last", async || limit("Max open files") == "16").await;
    assert_eq!(limit("Max address space"), (1_u64 << 30).to_string());
    assert_eq!((limit("Max cpu time"), limit("Max file size")), ("7".to_owned(), "0".to_owned()));
    assert_eq!(limit("Max core file size"), "0");
    let open = fs::read_dir(of("fd")).unwrap().map(|file| file.unwrap().file_name());
    let mut open: Vec<_> = open.collect();
    open.sort();
    assert_eq!(open, ["0", "1", "2"]);
    drop(child.stdin.take());
    let said = child.wait_with_output().await.unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("the body is empty"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_hides_is_named() {
    let server = Server::start().await;
    for (what, model, says) in [
        ("data in a file", onnx::external(), "`w`"),
        (
            "a shape that overflows",
            onnx::double(DataType::Float, &[Axis::Fixed(i64::MAX), Axis::Fixed(8)]),
            "",
        ),
    ] {
        let refused = server.put_model("m", model).await;
        assert_eq!(refused.status, 422, "{what}: {}", refused.text());
        assert!(refused.text().contains(says), "{what}: {}", refused.text());
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_that_would_need_too_much_is_refused_before_it_runs() {
    let server = Server::with(|settings| settings.limits.model_memory = Size::mib(1)).await;
    let model = onnx::double(DataType::Float, &[Axis::Named("n")]);
    assert_eq!(server.put_model("double", model).await.status, 201);
    server.deploy("nn", guests::NN, json!({ "models": ["double"] })).await;
    let run = async |floats: usize| {
        let path = "/raw?model=double&input=x&type=fp32&shape=".to_owned() + &floats.to_string();
        server.call("nn", &path, vec![0; floats * 4]).await
    };
    assert_eq!(run(100_000).await.body.len(), 400_000);
    let operators = server.devices.stats().operators;
    let refused = run(200_000).await;
    assert!(refused.text().contains("1048576"), "{}", refused.text());
    assert_eq!(server.devices.stats().operators, operators, "nothing ran");
    assert_eq!(run(100_000).await.body.len(), 400_000);
}
