//! What the server does when the disk does not take its changes, and with what older versions have left.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_tests::{Answer, Client, Process, guests, until};

const SAYS: &str = "Hello, world!\n";

fn hello() -> Vec<u8> {
    std::fs::read(guests::HELLO).unwrap()
}

async fn deploy(client: &Client, value: &str) -> Answer {
    client.deploy("hello", hello(), &json!({ "env": { "A": value } })).await
}

/// Sets a weight: a change of the database alone.
async fn weigh(client: &Client, weight: u32) -> Answer {
    client.put("/v1/tenants/acme", &json!({ "weight": weight })).await
}

async fn weight(client: &Client) -> Value {
    client.get("/v1/tenants/acme").await.json["set"]["weight"].clone()
}

async fn ready_is(client: &Client, status: u16) {
    let ready = || async { client.get("/readyz").await.status == status };
    until(&format!("/readyz answers {status}"), ready).await;
}

async fn works(client: &Client, revisions: usize) {
    assert_eq!(client.send(client.call("hello", "/", "")).await.text(), SAYS);
    let shown = client.get("/v1/functions/hello").await.json;
    assert_eq!(shown["revisions"].as_array().unwrap().len(), revisions);
}

fn is_refused(answer: &Answer, codes: &[(u16, &str)]) {
    assert!(codes.contains(&(answer.status, answer.code())), "{}", answer.text());
    assert_eq!(answer.json["retryable"], true);
    assert!(answer.headers.contains_key("retry-after"));
}

const FULL: (u16, &str) = (507, "storage_full");
const UNAVAILABLE: (u16, &str) = (503, "storage_unavailable");

fn blobs(data: &Path) -> usize {
    std::fs::read_dir(data.join("blobs")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_write_no_more_serves_on_and_recovers() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve_limited(data.path()).await;
    let client = Client::new(&server.url);
    assert_eq!(deploy(&client, "1").await.status, 201);
    assert_eq!(weigh(&client, 1).await.status, 201);
    ready_is(&client, 200).await;

    server.limit_files("0").await;
    is_refused(&deploy(&client, "2").await, &[FULL]);
    is_refused(&client.put_model("m", vec![0; 100]).await, &[FULL]);
    // SQLite tells a limit of this sort as an error of the disk, not as a full one.
    is_refused(&weigh(&client, 2).await, &[FULL, UNAVAILABLE]);
    is_refused(&client.delete("hello").await, &[FULL, UNAVAILABLE]);
    ready_is(&client, 503).await;
    assert_eq!(client.get("/readyz").await.code(), "storage_unavailable");
    assert_eq!(client.get("/healthz").await.status, 200);
    works(&client, 1).await;
    assert_eq!(weight(&client).await, 1);

    server.limit_files("unlimited").await;
    ready_is(&client, 200).await;
    assert_eq!(deploy(&client, "3").await.status, 201);
    assert_eq!(weigh(&client, 3).await.status, 200);
    works(&client, 2).await;
    server.kill().await;

    let server = Process::serve(data.path()).await;
    let client = Client::new(&server.url);
    works(&client, 2).await;
    assert_eq!(weight(&client).await, 3);
    assert_eq!(blobs(data.path()), 1);
    server.kill().await;
}

/// A small disk of its own.
struct Disk(tempfile::TempDir);

impl Disk {
    /// None where this process may not mount.
    async fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = tokio::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "weir-test"]).arg(folder.path());
        mount.output().await.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let full = loop {
            if let Err(error) = std::io::Write::write_all(&mut file, &[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_changes_until_there_is_room() {
    let Some(disk) = Disk::mount("64m").await else {
        return eprintln!("not run: this process may not mount a file system");
    };
    let server = Process::serve(disk.path()).await;
    let client = Client::new(&server.url);
    assert_eq!(deploy(&client, "1").await.status, 201);
    disk.fill();
    is_refused(&deploy(&client, "2").await, &[FULL]);
    is_refused(&client.put_model("m", vec![0; 100]).await, &[FULL]);
    ready_is(&client, 503).await;
    // What the database still has room for is acknowledged, and kept.
    let (mut kept, mut refused) = (Value::Null, None);
    for number in 1..=1000 {
        let answer = weigh(&client, number).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
        kept = json!(number);
    }
    is_refused(&refused.expect("no room some time"), &[FULL]);
    works(&client, 1).await;
    assert_eq!(
        client.get("/v1/tenants/acme").await.json["set"].get("weight").cloned().unwrap_or_default(),
        kept
    );

    std::fs::remove_file(disk.filler()).unwrap();
    ready_is(&client, 200).await;
    assert_eq!(deploy(&client, "3").await.status, 201);
    disk.fill();
    server.kill().await;
    std::fs::remove_file(disk.filler()).unwrap();

    let server = Process::serve(disk.path()).await;
    let client = Client::new(&server.url);
    works(&client, 2).await;
    assert_eq!(
        client.get("/v1/tenants/acme").await.json["set"].get("weight").cloned().unwrap_or_default(),
        kept
    );
    assert_eq!(blobs(disk.path()), 1);
    server.kill().await;
}

fn permit(folder: &Path, mode: u32) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What others than its owner may look into, of a folder and all that is in it.
fn open_to_others(at: &Path) -> Vec<PathBuf> {
    let found = std::fs::symlink_metadata(at).unwrap();
    let mut open: Vec<PathBuf> = vec![];
    if found.permissions().mode() & 0o077 != 0 {
        open.push(at.to_owned());
    }
    if found.is_dir() {
        let inside = std::fs::read_dir(at).unwrap();
        inside.for_each(|entry| open.extend(open_to_others(&entry.unwrap().path())));
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_for_its_owners_eyes_only() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("of/weir");
    let server = Process::serve(&data).await;
    let client = Client::new(&server.url);
    let echo = client.deploy("echo", std::fs::read(guests::ECHO).unwrap(), &json!({})).await;
    assert_eq!(echo.status, 201, "{}", echo.text());
    assert_eq!(client.send(client.call("echo", "/", "")).await.status, 200);
    let log = data.join("logs/default/echo.jsonl");
    until("the call has left lines", async || log.exists()).await;
    assert_eq!(open_to_others(&data), Vec::<PathBuf>::new());
    let backup = home.path().join("weir.tar");
    assert!(server.command(&["backup", backup.to_str().unwrap()]).await.status.success());
    server.kill().await;

    let restored = home.path().join("restored");
    let arguments = ["restore", backup.to_str().unwrap(), "--data-dir", restored.to_str().unwrap()];
    assert!(Process::run(&arguments, "", home.path()).await.status.success());
    assert_eq!(open_to_others(&restored), Vec::<PathBuf>::new());
}

/// Permissions do not bind root, so the server is somebody else's where the test is root's.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_directory_refuses_changes_until_it_can_be_written() {
    const NOBODY: u32 = 65534;
    let home = tempfile::tempdir().unwrap();
    let (data, binary) = (home.path().join("data"), home.path().join("weir"));
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(Process::binary("weir"), &binary).unwrap();
    let mut command = Process::server_of(&binary, &data);
    if std::fs::metadata(&data).unwrap().uid() == 0 {
        permit(home.path(), 0o755);
        chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let server = Process::start(command).await;
    let client = Client::new(&server.url);
    assert_eq!(deploy(&client, "1").await.status, 201);

    let folders = [data.clone(), data.join("tmp"), data.join("blobs")];
    folders.iter().for_each(|folder| permit(folder, 0o555));
    is_refused(&deploy(&client, "2").await, &[UNAVAILABLE]);
    is_refused(&client.put_model("m", vec![0; 100]).await, &[UNAVAILABLE]);
    ready_is(&client, 503).await;
    works(&client, 1).await;

    folders.iter().for_each(|folder| permit(folder, 0o755));
    ready_is(&client, 200).await;
    assert_eq!(deploy(&client, "3").await.status, 201);
    works(&client, 2).await;
    server.kill().await;
}

/// A data directory as versions before the database had it.
fn old(data: &Path) -> PathBuf {
    let digest = hex::encode(Sha256::digest(hello()));
    let record = json!({
        "tenant": "default",
        "name": "hello",
        "revisions": [{
            "revision": 4, "digest": digest, "bytes": hello().len(), "config": { "env": { "A": "1" } },
            "imports": ["wasi:http/types@0.2.0"], "created": "2026-01-01T00:00:00Z",
        }],
        "traffic": [{ "revision": 4, "weight": 100 }],
    });
    for folder in ["blobs", "index/functions/default", "index/models", "index/tenants/acme"] {
        std::fs::create_dir_all(data.join(folder)).unwrap();
    }
    std::fs::write(data.join("blobs").join(&digest), hello()).unwrap();
    let tenant = json!({ "tenant": "acme", "share": { "weight": 7 } });
    std::fs::write(data.join("index/tenants/acme/tenant"), tenant.to_string()).unwrap();
    let file = data.join("index/functions/default/hello");
    std::fs::write(&file, record.to_string()).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_data_directory_moves_on() {
    let data = tempfile::tempdir().unwrap();
    old(data.path());
    for restart in 0..2 {
        let server = Process::serve(data.path()).await;
        let client = Client::new(&server.url);
        works(&client, 1 + restart).await;
        assert_eq!(weight(&client).await, 7);
        assert!(data.path().join("index.migrated/functions/default/hello").exists());
        assert_eq!(deploy(&client, &format!("of {restart}")).await.json["revision"], 5 + restart);
        server.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_file_that_is_not_understood_stops_the_start() {
    let data = tempfile::tempdir().unwrap();
    let file = old(data.path());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let arguments =
        ["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", data.path().to_str().unwrap()];
    let refused = Process::run(&arguments, "", data.path()).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("index/functions/default/hello cannot be understood"), "{said}");
    assert!(!data.path().join("index.migrated").exists());
    assert_eq!(blobs(data.path()), 1);

    std::fs::write(&file, &text).unwrap();
    let server = Process::serve(data.path()).await;
    works(&Client::new(&server.url), 1).await;
    server.kill().await;
}
