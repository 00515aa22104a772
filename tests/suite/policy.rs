//! What an operator lets tenants deploy, and who must have signed it.

use std::path::Path;
use std::sync::Arc;

use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use weir::signature::{self, SecretKey};
use weir_tests::{Answer, Client, Process, Server, guests};

async fn with_policy(policy: &str) -> Server {
    Server::with_policy(Arc::new(tempfile::tempdir().unwrap()), policy).await
}

fn rules(violations: &Value) -> Vec<&str> {
    violations.as_array().unwrap().iter().map(|violation| violation["rule"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_deploy_lists_every_violation_and_changes_nothing() {
    let policy = r#"
        [defaults]
        imports = ["wasi:io/*", "wasi:cli/*"]
        egress = ["*.acme.example"]
        classes = ["batch"]
        public = false
        limits.memory = "64MiB"
    "#;
    let server = with_policy(policy).await;
    let config = json!({ "egress": ["api.acme.example", "b.example"], "public": true });
    let refused = server.deploy("f", guests::HELLO, config).await;
    assert_eq!((refused.status, refused.code()), (403, "policy_violation"), "{}", refused.text());
    let violations = &refused.json["violations"];
    let found = rules(violations);
    let (imports, others): (Vec<&str>, Vec<&str>) = found.iter().partition(|rule| **rule == "imports");
    assert!(!imports.is_empty());
    assert_eq!(others, ["egress", "classes", "public", "limits.memory"]);
    let egress =
        violations.as_array().unwrap().iter().find(|violation| violation["rule"] == "egress").unwrap();
    assert_eq!(*egress, json!({ "rule": "egress", "asked": "b.example", "allowed": ["*.acme.example"] }));
    for violation in violations.as_array().unwrap() {
        let asked = violation["asked"].as_str().unwrap();
        assert!(refused.json["detail"].as_str().unwrap().contains(asked), "{}", refused.text());
        if violation["rule"] == "imports" {
            assert!(asked.starts_with("wasi:http/") || asked.starts_with("wasi:"), "{asked}");
            assert!(!asked.starts_with("wasi:io/") && !asked.starts_with("wasi:cli/"), "{asked}");
        }
    }
    assert_eq!(server.get("/v1/functions/f").await.status, 404);
    for folder in ["blobs", "artifacts"] {
        let left = files(&server.data.path().join(folder));
        assert!(left.is_empty(), "{left:?}");
    }
    server.stop().await;
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_own_rules_go_before_the_defaults() {
    let policy = |tenant: &str| {
        format!("[defaults]\nimports = []\nmodels = []\n[tenants.{tenant}]\nimports = [\"*\"]\n")
    };
    let other = with_policy(&policy("acme")).await;
    let refused = other.deploy("f", guests::HELLO, json!({})).await;
    assert_eq!(refused.code(), "policy_violation", "{}", refused.text());
    other.stop().await;
    let server = with_policy(&policy("default")).await;
    let deployed = server.deploy("f", guests::HELLO, json!({})).await;
    assert_eq!(deployed.status, 201, "{}", deployed.text());
    server.put_model("m", weir_tests::onnx::double(FLOAT, &[weir_tests::onnx::Axis::Fixed(1)])).await;
    let refused = server.deploy("f", guests::HELLO, json!({ "models": ["m"] })).await;
    assert_eq!(
        refused.json["violations"],
        json!([{ "rule": "models", "asked": "m", "allowed": [] }]),
        "{}",
        refused.text()
    );
    server.stop().await;
}

const FLOAT: tract_onnx::pb::tensor_proto::DataType = tract_onnx::pb::tensor_proto::DataType::Float;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deployed_goes_on_under_a_stricter_policy() {
    let server = Server::start().await;
    let first = server.deploy("f", guests::HELLO, json!({})).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let data = server.stop().await;
    let server = Server::with_policy(data, "[defaults]\nimports = []").await;
    assert_eq!(server.call("f", "/", "").await.status, 200);
    let same = server.deploy("f", guests::HELLO, json!({})).await;
    assert_eq!((same.status, &same.json["revision"]), (200, &json!(1)), "{}", same.text());
    let other = server.deploy("f", guests::HELLO, json!({ "reuse": 2 })).await;
    assert_eq!(other.code(), "policy_violation", "{}", other.text());
    // The refused deploy was of the same bytes, which are still needed.
    assert_eq!(server.call("f", "/", "").await.status, 200);
    server.stop().await;
}

async fn deploys(server: &Server, component: &[u8], signature: Option<&str>) -> Answer {
    let form = Form::new().part("component", Part::bytes(component.to_vec()));
    let mut request = server.request(Method::POST, "/v1/functions/f/revisions").multipart(form);
    if let Some(signature) = signature {
        request = request.header("weir-signature", signature);
    }
    server.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_must_be_signed_by_a_key_of_its_tenant() {
    let server = with_policy("[defaults]\nrequire_signature = true").await;
    let component = std::fs::read(guests::HELLO).unwrap();
    let key = || SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let (release, stranger) = (key(), key());
    let by = |key: &SecretKey, bytes: &[u8]| key.sign(&signature::digest(bytes)).unwrap().base64();
    let right = by(&release, &component);

    let without_keys = deploys(&server, &component, Some(&right)).await;
    assert_eq!(
        (without_keys.status, without_keys.code()),
        (422, "invalid_signature"),
        "{}",
        without_keys.text()
    );
    let key = json!({ "name": "release", "public_key": release.public().unwrap().pem() });
    let set = server.put("/v1/tenants/default", json!({ "signing_keys": [key] })).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(set.json["set"]["signing_keys"][0]["name"], "release");

    let missing = deploys(&server, &component, None).await;
    assert_eq!((missing.status, missing.code()), (403, "policy_violation"), "{}", missing.text());
    assert_eq!(rules(&missing.json["violations"]), ["require_signature"]);
    for wrong in [&by(&stranger, &component), &by(&release, b"other bytes"), "AAAA", "no base64"] {
        let refused = deploys(&server, &component, Some(wrong)).await;
        assert_eq!(
            (refused.status, refused.code()),
            (422, "invalid_signature"),
            "{wrong}: {}",
            refused.text()
        );
    }
    assert_eq!(server.get("/v1/functions/f").await.status, 404);

    let signed = deploys(&server, &component, Some(&right)).await;
    assert_eq!(signed.status, 201, "{}", signed.text());
    assert_eq!(signed.json["signed_by"], "release");
    let data = server.stop().await;

    // It is kept, and where none is required the same bytes without a signature are another revision.
    let server = Server::with_policy(data, "").await;
    assert_eq!(server.status("f").await["revisions"][0]["signed_by"], "release");
    assert_eq!(deploys(&server, &component, Some(&right)).await.status, 200);
    let unsigned = deploys(&server, &component, None).await;
    assert_eq!((unsigned.status, &unsigned.json["signed_by"]), (201, &Value::Null), "{}", unsigned.text());
    let refused = deploys(&server, &component, Some(&by(&stranger, &component))).await;
    assert_eq!(refused.code(), "invalid_signature", "{}", refused.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_checked_without_a_server_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let run = async |arguments: &[&str]| Process::run(arguments, "http://127.0.0.1:9", folder.path()).await;
    let text = "[defaults]\nimports = []\nlimits.memory = \"64MiB\"\n[tenants.acme]\nimports = [\"*\"]";
    std::fs::write(at("policy.toml"), text).unwrap();
    std::fs::write(at("config.json"), r#"{"limits": {"memory": "32MiB"}}"#).unwrap();

    let refused = run(&["policy", "check", guests::HELLO, "--json"]).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let offline: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let server = with_policy(text).await;
    for component in [guests::HELLO, guests::HELLO_P3, guests::NN] {
        let checked = run(&["policy", "check", component, "--json"]).await;
        let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
        let deployed = server.deploy("f", component, json!({})).await;
        assert_eq!(deployed.json["violations"], checked["violations"], "{component}");
    }
    server.stop().await;
    assert!(rules(&offline["violations"]).ends_with(&["imports", "limits.memory"]), "{offline}");

    let config = ["--tenant", "acme", "--config", "config.json"];
    let allowed = run(&[&["policy", "check", guests::HELLO][..], &config].concat()).await;
    assert!(allowed.status.success(), "{allowed:?}");
    let flags =
        [&["policy", "check", guests::HELLO][..], &config, &["--set", "limits.memory=65MiB"]].concat();
    let refused = run(&flags).await;
    assert_eq!(refused.status.code(), Some(1));
    let table = String::from_utf8_lossy(&refused.stdout);
    assert!(table.contains("limits.memory  65.0 MiB  64.0 MiB"), "{table}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1 violation"), "{refused:?}");

    std::fs::write(at("wrong.toml"), "[defaults]\nimport = []").unwrap();
    let wrong = run(&["policy", "check", guests::HELLO, "--policy", "wrong.toml"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`import`"), "{wrong:?}");
    let serve = run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--policy", "wrong.toml"]).await;
    assert_eq!(serve.status.code(), Some(2), "{serve:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("policy.toml"), "[defaults]\nrequire_signature = true").unwrap();
    let server = Process::serve_with(&data, "[policy]\nfile = \"policy.toml\"").await;
    let run = async |arguments: &[&str]| Process::run(arguments, &server.url, folder.path()).await;
    let done = async |arguments: &[&str]| {
        let output = run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    std::fs::copy(guests::HELLO, folder.path().join("f.wasm")).unwrap();
    done(&["sign", "--generate", "key.pem"]).await;
    let again = run(&["sign", "--generate", "key.pem"]).await;
    assert_eq!(again.status.code(), Some(2), "a key is not written over: {again:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(folder.path().join("key.pem")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    done(&["tenants", "set", "default", "--signing-key", "release=key.pem.pub"]).await;
    done(&["sign", "f.wasm", "--key", "key.pem"]).await;

    let unsigned = run(&["deploy", "f", "f.wasm"]).await;
    assert_eq!(unsigned.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&unsigned.stderr).contains("require_signature: no signature"),
        "{unsigned:?}"
    );
    done(&["deploy", "f", "f.wasm", "--signature", "f.wasm.sig"]).await;
    let by_policy = ["policy", "check", "f.wasm", "--policy", "data/policy.toml"];
    assert_eq!(run(&by_policy).await.status.code(), Some(1));
    let signed = ["--signature", "f.wasm.sig", "--public-key", "key.pem.pub"];
    done(&[&by_policy[..], &signed].concat()).await;
    std::fs::copy(guests::NN, folder.path().join("f.wasm")).unwrap();
    assert_eq!(run(&[&by_policy[..], &signed].concat()).await.status.code(), Some(1));
    let other = run(&["deploy", "f", "f.wasm", "--signature", "f.wasm.sig"]).await;
    assert!(String::from_utf8_lossy(&other.stderr).contains("invalid_signature"), "{other:?}");
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_read_again_and_holds_at_once() {
    let data = tempfile::tempdir().unwrap();
    let policy = data.path().join("policy.toml");
    std::fs::write(&policy, "[defaults]\npublic = true").unwrap();
    let mut command = Process::server_of(&Process::binary("weir"), data.path());
    command.arg("--policy").arg(&policy);
    let server = Process::start(command).await;
    let client = Client::new(&server.url);
    let component = std::fs::read(guests::HELLO).unwrap();
    let deploy = async |name: &str| client.deploy(name, component.clone(), &json!({ "public": true })).await;
    assert_eq!(deploy("before").await.status, 201);

    std::fs::write(&policy, "[defaults]\npublic = false").unwrap();
    server.signal("HUP");
    server.says("changed: policy.defaults.public: true -> false", 1).await;
    server.says("the policy would not allow this revision now", 1).await;
    server.says("was read again", 1).await;
    let refused = deploy("after").await;
    assert_eq!(rules(&refused.json["violations"]), ["public"], "{}", refused.text());
    assert_eq!(client.send(client.call("before", "/", "")).await.status, 200, "it goes on");
    let entries = client.get("/v1/audit").await.json["entries"].clone();
    let told = entries.as_array().unwrap().iter().find(|entry| entry["entry"]["request"] == "SIGHUP");
    let changed = &told.expect("the audit log has it")["entry"]["changed"];
    assert_eq!(
        (&changed[0]["kind"], &changed[0]["name"]),
        (&json!("settings"), &json!("policy.defaults.public")),
        "{entries}"
    );

    std::fs::write(&policy, "[defaults]\npublick = true").unwrap();
    server.signal("HUP");
    server.says("`publick`", 1).await;
    assert_eq!(deploy("after").await.code(), "policy_violation", "what is wrong changes nothing");
    server.kill().await;
}
