//! Backups that are made while the server is changed, and the data directories that are made of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::onnx::{self, Axis};
use weir_tests::{Client, Process, Server, guests, until};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn restore(file: &Path, data: &Path) -> Output {
    let arguments = ["restore", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    Process::run(&arguments, "", Path::new(".")).await
}

/// A component that says hello, with bytes that no other has.
fn component(number: usize) -> Vec<u8> {
    let hello = std::fs::read(guests::HELLO).unwrap();
    let name = u32::try_from(number).unwrap().to_le_bytes();
    // A custom section: no code, but other bytes.
    [&hello[..], &[0, 5, 4], &name].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_of_one_moment_while_functions_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = Process::serve_with(&data, "[preparation]\nat_once = 4").await;
    let client = Client::new(&server.url);
    let double = onnx::double(DataType::Float, &[Axis::Fixed(1)]);
    assert_eq!(client.put_model("double", double).await.status, 201);
    let nn = client.deploy("nn", std::fs::read(guests::NN).unwrap(), &json!({ "models": ["double"] })).await;
    assert_eq!(nn.status, 201, "{}", nn.text());

    // Each worker deploys a function with bytes of its own, and then deletes it.
    let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let (client, stop, changes) = (client.clone(), Arc::clone(&stop), Arc::clone(&changes));
            tokio::spawn(async move {
                for number in (worker..).step_by(3) {
                    let name = format!("f{number}");
                    let deployed = client.deploy(&name, component(number), &json!({})).await;
                    assert_eq!(deployed.status, 201, "{}", deployed.text());
                    changes.fetch_add(1, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    // Every other one stays.
                    if number % 2 == 0 {
                        assert_eq!(client.delete(&name).await.status, 204);
                    }
                }
            })
        })
        .collect();
    let mut files = vec![];
    for number in 0..5 {
        let before = changes.load(Ordering::SeqCst);
        until("there are changes", async || changes.load(Ordering::SeqCst) > before + 2).await;
        let file = folder.path().join(format!("{number}.tar"));
        let made = server.command(&["backup", file.to_str().unwrap()]).await;
        assert!(made.status.success(), "{}", said(&made));
        files.push(file);
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    server.kill().await;

    let mut sizes = BTreeSet::new();
    for (number, file) in files.iter().enumerate() {
        let check = Process::run(&["restore", "--check", file.to_str().unwrap()], "", folder.path()).await;
        assert!(check.status.success(), "{}", said(&check));
        let restored = folder.path().join(format!("restored-{number}"));
        let made = restore(file, &restored).await;
        assert!(made.status.success(), "{}", said(&made));
        let server = Process::serve(&restored).await;
        let client = Client::new(&server.url);
        let listed = client.get("/v1/functions").await.json;
        let names: Vec<&str> = listed["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["function"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"nn") && names.len() > 1, "{names:?}");
        sizes.insert(names.len());
        for name in names.iter().filter(|name| **name != "nn") {
            let answer = client.send(client.call(name, "/", "")).await;
            assert_eq!(answer.text(), "Hello, world!\n", "{name}");
        }
        let raw =
            client.call("nn", "/raw?model=double&input=x&type=fp32&shape=1", 1.5_f32.to_le_bytes().to_vec());
        assert_eq!(client.send(raw).await.body[..], 3.0_f32.to_le_bytes());
        server.kill().await;
    }
    assert!(sizes.len() > 1, "the backups are of different moments: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_server_knows_its_keys_and_the_backup_none_of_their_secrets() {
    let (server, key) = Server::with_keys().await;
    let request = server.request(Method::PUT, "/v1/tenants/acme").bearer_auth(&key).json(&json!({}));
    assert_eq!(server.send(request).await.status, 201);
    let backup = server.send(server.request(Method::POST, "/v1/backup").bearer_auth(&key)).await;
    assert_eq!(
        (backup.status, &backup.headers["content-type"]),
        (200, &"application/x-tar".parse().unwrap())
    );
    let contains = |text: &str| backup.body.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(contains("acme") && !contains(key.rsplit('_').next().unwrap()));
    server.stop().await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.tar");
    std::fs::write(&file, &backup.body).unwrap();
    let restored = Arc::new(tempfile::tempdir().unwrap());
    let made = restore(&file, restored.path()).await;
    assert!(made.status.success(), "{}", said(&made));
    assert!(!restored.path().join("operator.key").exists());
    let server = Server::with_keys_on(Arc::clone(&restored)).await;
    assert!(!restored.path().join("operator.key").exists(), "there is an operator's key already");
    let tenants = server.send(server.request(Method::GET, "/v1/tenants").bearer_auth(&key)).await;
    assert!(tenants.text().contains("\"acme\""), "{}", tenants.text());
    let audit = server.send(server.request(Method::GET, "/v1/audit").bearer_auth(&key)).await;
    let told = audit.json["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(told["entry"]["request"], "POST /v1/backup", "who took it is told, in the backup itself");
    let request = server.request(Method::GET, "/v1/tenants").bearer_auth(format!("{key}x"));
    assert_eq!(server.send(request).await.status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Process::serve(&data).await;
    let client = Client::new(&server.url);
    assert_eq!(client.deploy("hello", component(0), &json!({})).await.status, 201);
    let file = folder.path().join("backup.tar");
    let backup = ["backup", file.to_str().unwrap(), "--json"];
    let made = server.command(&backup).await;
    let manifest: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(manifest["files"].as_array().unwrap().len(), 2, "{manifest}");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "hashes of keys are in it");

    let again = server.command(&backup).await;
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("is there already"), "{}", said(&again));
    let refused = restore(&file, &data).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("another server has the data directory"), "{}", said(&refused));
    assert_eq!(client.send(client.call("hello", "/", "")).await.text(), "Hello, world!\n");
    server.kill().await;
    let refused = restore(&file, &data).await;
    assert!(said(&refused).contains("is not empty"), "{}", said(&refused));

    // A blob that the disk gives otherwise than it took it.
    let server = Process::serve(&data).await;
    let blob = std::fs::read_dir(data.join("blobs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let other = folder.path().join("other.tar");
    let broken = server.command(&["backup", other.to_str().unwrap()]).await;
    assert!(!broken.status.success());
    server.says("on the disk is not what it was", 1).await;
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no half of a backup is left: {left:?}");
    server.kill().await;
}
