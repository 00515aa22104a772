//! The command line, as a person uses it.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use weir_tests::{Process, guests};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn from_deploy_to_delete() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let run = async |arguments: &[&str]| server.command(arguments).await;
    let json = async |arguments: &[&str]| -> Value {
        let output = run(arguments).await;
        assert!(output.status.success(), "{}", complained(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };

    assert!(said(&run(&["functions"]).await).contains("no functions yet"));
    assert!(said(&run(&["models"]).await).contains("no models yet"));
    let deployed = run(&["deploy", "echo", guests::ECHO, "--env", "A=1", "--set", "reuse=2"]).await;
    assert!(deployed.status.success(), "{}", complained(&deployed));
    assert!(said(&deployed).starts_with("echo revision 1 ("), "{}", said(&deployed));
    assert!(said(&deployed).ends_with("call it: weir call echo\n"), "{}", said(&deployed));

    let called = run(&["call", "echo", "/path?q=1", "-d", "the body", "-H", "x-a: b"]).await;
    assert!(called.status.success());
    let seen: Value = serde_json::from_str(&said(&called)).unwrap();
    assert_eq!(
        (&seen["method"], &seen["path"], &seen["body"]),
        (&"POST".into(), &"/path".into(), &"the body".into())
    );
    assert_eq!(seen["env"]["A"], "1");

    let listed = said(&run(&["functions"]).await);
    assert!(listed.contains("echo") && listed.contains("ready"), "{listed}");
    let status = json(&["status", "echo", "--json"]).await;
    assert_eq!((&status["state"], &status["cold_starts"]), (&"ready".into(), &1.into()));
    assert_eq!(status["revisions"][0]["config"]["reuse"], 2);
    let shown = said(&run(&["status", "echo"]).await);
    assert!(shown.contains("state        ready") && shown.contains("REVISION"), "{shown}");
    let log = said(&run(&["logs", "echo"]).await);
    assert!(log.contains("stdout stdout of /path") && log.contains("stderr stderr of /path"), "{log}");

    run(&["deploy", "echo", guests::ECHO, "--set", "reuse=3"]).await;
    run(&["traffic", "echo", "2=1", "--sticky-header", "x-user"]).await;
    let shown = said(&run(&["status", "echo"]).await);
    assert!(shown.contains("sticky by    the header x-user"), "{shown}");
    assert!(shown.contains("rollback to  revision 1"), "{shown}");
    let deleted = run(&["delete", "echo"]).await;
    assert_eq!(said(&deleted), "echo is deleted\n");
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    server.command(&["deploy", "echo", guests::ECHO]).await;
    server.command(&["call", "echo", "/one"]).await;
    let mut follow = tokio::process::Command::new(Process::binary("weir"))
        .args(["logs", "echo", "-f"])
        .env("WEIR_URL", &server.url)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    assert!(next().await.ends_with("stdout of /one"));
    assert!(next().await.ends_with("stderr of /one"));
    server.command(&["call", "echo", "/two"]).await;
    assert!(next().await.ends_with("stdout of /two"));
    follow.kill().await.unwrap();
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_sentences_say_what_to_do() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let wasm = data.path().join("not.wasm");
    std::fs::write(&wasm, "hello").unwrap();
    let wasm = wasm.to_str().unwrap();
    let policy = data.path().join("policy.toml");
    std::fs::write(&policy, "[defaults]\n").unwrap();
    let policy = policy.to_str().unwrap();
    let hello = ["deploy", "f", guests::HELLO, "--set"];
    let set = |value| [&hello[..], &[value]].concat();
    let refusals: [(&[&str], i32, &str); 17] = [
        (&["deploy", "f", wasm], 1, "not WebAssembly"),
        (&["deploy", "f", "nowhere.wasm"], 2, "nowhere.wasm cannot be read"),
        (&["deploy", "F", guests::HELLO], 1, "not a function's name"),
        (&["deploy", "f", guests::HELLO, "--set", "reuse"], 2, "write NAME=VALUE"),
        (&["deploy", "f", guests::HELLO, "--model", "m"], 1, "upload it first"),
        (&["call", "none"], 1, "404"),
        (&["status", "none"], 1, "there is no function `none` (not_found)"),
        (&["models", "put", "m", wasm], 1, "invalid_model"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
        (
            &set("idle_timeout=5"),
            1,
            "config: idle_timeout: invalid type: integer `5`, expected a duration with a unit",
        ),
        (&set("egress=api.example.com"), 1, "expected a list, such as [\"a\", \"b\"]"),
        (
            &["tenants", "set", "default", "--call-burst", "0"],
            1,
            "weir: call_burst: invalid value: integer `0`",
        ),
        (&["serve", "--listen", "localhost:7070"], 2, "write IP:PORT, such as 127.0.0.1:7070"),
        (&["serve", "--listen", "7070"], 2, "write IP:PORT, such as 127.0.0.1:7070"),
        (&["new", "weir-sdk"], 2, "is the name of a crate that comes along"),
        (&["keys", "revoke", "../tenants"], 2, "write a key's id"),
        (
            &["policy", "check", guests::HELLO, "--policy", policy, "--tenant", "Beta"],
            2,
            "`Beta` is not a tenant's name",
        ),
    ];
    for (arguments, code, says) in refusals {
        let output = server.command(arguments).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", complained(&output));
        assert!(complained(&output).contains(says), "{arguments:?}: {}", complained(&output));
    }
    let mut command = server.command_line(&["call", "none", "--json"]);
    let empty =
        command.env("WEIR_TENANT", "").env("WEIR_CA", "").env("WEIR_TOKEN", "").output().await.unwrap();
    assert!(said(&empty).contains("the tenant `default` has no function `none`"), "{}", said(&empty));
    let mut command = server.command_line(&["functions"]);
    let empty = command.env("WEIR_URL", "").env("WEIR_CA", "").output().await.unwrap();
    assert!(!complained(&empty).contains("is not a server's address"), "{}", complained(&empty));
    server.kill().await;
    let unreachable = Process::run(&["functions"], "http://127.0.0.1:9", data.path()).await;
    assert_eq!(unreachable.status.code(), Some(3));
    assert!(complained(&unreachable).contains("weir serve --dev"), "{}", complained(&unreachable));
    let for_all = Process::run(&["serve", "--dev", "--listen", "0.0.0.0:0"], "", data.path()).await;
    assert_eq!(for_all.status.code(), Some(2));
    assert!(complained(&for_all).contains("loopback addresses only"), "{}", complained(&for_all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_builds_deploys_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let new = Process::run(&["new", "my-function"], "", folder.path()).await;
    assert!(new.status.success(), "{}", complained(&new));
    let again = Process::run(&["new", "my-function"], "", folder.path()).await;
    assert_eq!(again.status.code(), Some(2));
    assert!(complained(&again).contains("there is a `my-function` here already"));
    assert_eq!(Process::run(&["new", "../x"], "", folder.path()).await.status.code(), Some(2));

    let project = folder.path().join("my-function");
    let built = tokio::process::Command::new("cargo")
        .args(["build", "--release", "--target", "wasm32-wasip2", "--target-dir"])
        .arg(weir_tests::root().join("target/new-project"))
        .current_dir(&project)
        .output()
        .await
        .unwrap();
    assert!(built.status.success(), "{}", complained(&built));
    let component = weir_tests::root().join("target/new-project/wasm32-wasip2/release/my_function.wasm");
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let deployed = server.command(&["deploy", "my-function", component.to_str().unwrap()]).await;
    assert!(deployed.status.success(), "{}", complained(&deployed));
    let called = server.command(&["call", "my-function", "--data", r#"{"name": "Ada"}"#]).await;
    assert_eq!(said(&called), "{\"greeting\":\"Hello, Ada!\"}\n");
    let wrong = server.command(&["call", "my-function", "--data", r#"{"nome": "Ada"}"#]).await;
    assert_eq!(wrong.status.code(), Some(1));
    assert!(said(&wrong).contains("invalid_json"), "{}", said(&wrong));
    let log = said(&server.command(&["logs", "my-function"]).await);
    assert!(log.contains("greeting Ada"), "{log}");
    server.kill().await;
}

/// A request's head and body, of one that says how long it is, and the wire to answer it on.
async fn next_request(listener: &TcpListener) -> (String, TcpStream) {
    let (mut wire, _) = listener.accept().await.unwrap();
    let (mut seen, mut piece) = (String::new(), [0; 1024]);
    loop {
        let read = wire.read(&mut piece).await.unwrap();
        seen += std::str::from_utf8(&piece[..read]).unwrap();
        let Some((head, body)) = seen.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return (seen, wire);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_without_an_answer_can_be_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let command =
        tokio::spawn(async move { Process::run(&["rollback", "rank"], &url, Path::new(".")).await });
    let (asked, mut wire) = next_request(&listener).await;
    assert!(asked.starts_with("GET /v1/functions/rank "), "{asked}");
    let body = r#"{"rollback_to": 4}"#;
    let answer =
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    wire.write_all(answer.as_bytes()).await.unwrap();
    let (asked, wire) = next_request(&listener).await;
    assert!(asked.starts_with("POST /v1/functions/rank/rollback "), "{asked}");
    assert!(asked.ends_with(r#"{"revision":4}"#), "{asked}");
    drop(wire);
    let output = command.await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        complained(&output).contains("`weir rollback rank --to 4` does no harm"),
        "{}",
        complained(&output)
    );
}
