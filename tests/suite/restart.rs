//! What was acknowledged is there after a crash.

use std::path::PathBuf;

use serde_json::json;
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::{self, Axis};
use weir_tests::{Process, Server, guests};

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_the_same_functions_and_models_answer() {
    let data = tempfile::tempdir().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let input = 1.5_f32.to_le_bytes().to_vec();
    let output = 3.0_f32.to_le_bytes().to_vec();
    let raw = "fn/default/nn/raw?model=double&input=x&type=fp32&shape=1";

    let first = Process::serve(data.path()).await;
    let model = data.path().join("double.onnx");
    std::fs::write(&model, onnx::double(DataType::Float, &[Axis::Fixed(1)])).unwrap();
    for command in [
        vec!["models", "put", "double", model.to_str().unwrap()],
        vec!["deploy", "hello", guests::HELLO, "--env", "A=1"],
        vec!["deploy", "hello", guests::HELLO, "--env", "A=2"],
        vec!["deploy", "nn", guests::NN, "--model", "double"],
    ] {
        let output = first.command(&command).await;
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let called = client.post(format!("{}/{raw}", first.url)).body(input.clone()).send().await.unwrap();
    assert_eq!(called.bytes().await.unwrap(), output);
    let status = |url: &str| client.get(format!("{url}/v1/functions/hello")).send();
    let before: serde_json::Value = status(&first.url).await.unwrap().json().await.unwrap();
    first.kill().await;

    // What a crash can leave behind: an upload half way.
    let half = data.path().join("tmp/.half-an-upload");
    std::fs::write(&half, "half").unwrap();
    // And bytes that arrived whole, but whose definition did not.
    let orphan = data.path().join("blobs").join("0".repeat(64));
    std::fs::write(&orphan, "orphan").unwrap();

    let second = Process::serve(data.path()).await;
    let called = client.post(format!("{}/{raw}", second.url)).body(input).send().await.unwrap();
    assert_eq!(called.bytes().await.unwrap(), output);
    let hello = client.get(format!("{}/fn/default/hello/", second.url)).send().await.unwrap();
    assert_eq!(hello.text().await.unwrap(), "Hello, world!\n");
    let after: serde_json::Value = status(&second.url).await.unwrap().json().await.unwrap();
    for field in ["digest", "config", "created", "imports", "revision"] {
        for revision in 0..2 {
            assert_eq!(after["revisions"][revision][field], before["revisions"][revision][field], "{field}");
        }
    }
    assert_eq!(after["traffic"], before["traffic"]);
    assert!(!half.exists() && !orphan.exists());
    second.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_foreign_artifact_is_compiled_again() {
    let server = Server::start().await;
    server.deploy("hello", guests::HELLO, json!({})).await;
    let data = server.stop().await;
    let artifacts: Vec<PathBuf> = std::fs::read_dir(data.path().join("artifacts"))
        .unwrap()
        .flat_map(|engine| std::fs::read_dir(engine.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
        .collect();
    assert_eq!(artifacts.len(), 1);
    for damage in ["gone", "another engine's"] {
        // A file of its own: the server before, in this process, may still have the old one mapped for a moment.
        std::fs::remove_file(&artifacts[0]).unwrap();
        if damage != "gone" {
            std::fs::write(&artifacts[0], "not an artifact").unwrap();
        }
        let server = Server::on(std::sync::Arc::clone(&data), Default::default()).await;
        assert_eq!(server.get("/fn/default/hello/").await.text(), "Hello, world!\n", "{damage}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_do_not_share_a_data_directory() {
    let data = tempfile::tempdir().unwrap();
    let first = Process::serve(data.path()).await;
    let arguments =
        ["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", data.path().to_str().unwrap()];
    let second = Process::run(&arguments, "", data.path()).await;
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("another server has the data directory"), "{said}");
    first.kill().await;
}
