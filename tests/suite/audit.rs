//! Who changed what is told, and cannot be altered unseen.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use weir_tests::{Process, Server};

use crate::access::{Who, two_tenants};

/// The entries that somebody sees, oldest first.
async fn entries(server: &Server, who: &Who) -> Vec<Value> {
    let log = who.asks(server, "GET", "/v1/audit?limit=1000&after=0", None).await;
    assert_eq!(log.status, 200, "{}", log.text());
    log.json["entries"].as_array().unwrap().iter().map(|line| line["entry"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_and_every_refusal_is_told() {
    let (server, operator) = two_tenants().await;
    let admin = operator.meaning("acme").makes(&server, json!({ "role": "admin" })).await;
    let other = operator.meaning("other").makes(&server, json!({ "role": "admin" })).await;
    let viewer = admin.makes(&server, json!({ "role": "viewer" })).await;
    let before = entries(&server, &operator).await.len();

    admin.deploys(&server, "hello", json!({})).await;
    let model =
        server.request(Method::PUT, "/v1/models/none?format=onnx").bearer_auth(admin.key.as_ref().unwrap());
    assert_eq!(server.send(model.body("no model")).await.status, 422);
    let split = json!({ "traffic": [{ "revision": 1, "weight": 7 }] });
    assert_eq!(admin.asks(&server, "PUT", "/v1/functions/hello/traffic", Some(split)).await.status, 200);
    assert_eq!(viewer.asks(&server, "DELETE", "/v1/functions/hello", None).await.status, 403);
    assert_eq!(admin.asks(&server, "DELETE", "/v1/functions/hello", None).await.status, 204);
    let wrong = Who::with(&format!("weir_{}_{}", admin.id(), "0".repeat(64)));
    assert_eq!(wrong.asks(&server, "GET", "/v1/functions", None).await.status, 401);
    // These change nothing, and are not told.
    assert_eq!(admin.asks(&server, "GET", "/v1/functions", None).await.status, 200);
    assert_eq!(Who::default().asks(&server, "GET", "/v1/functions", None).await.status, 401);
    assert_eq!(admin.asks(&server, "GET", "/fn/acme/nothing/", None).await.status, 404);

    let all = entries(&server, &operator).await;
    let told: Vec<Value> = all[before..]
        .iter()
        .map(|entry| {
            json!([entry["request"], entry["outcome"], entry["key"], entry["role"], entry["tenant"]])
        })
        .collect();
    let by = |who: &Who, role: &str, request: &str, outcome: &str| {
        json!([request, outcome, who.id(), role, "acme"])
    };
    assert_eq!(
        told,
        [
            by(&admin, "admin", "POST /v1/functions/hello/revisions", "done"),
            by(&admin, "admin", "PUT /v1/models/none", "invalid_model"),
            by(&admin, "admin", "PUT /v1/functions/hello/traffic", "done"),
            by(&viewer, "viewer", "DELETE /v1/functions/hello", "forbidden"),
            by(&admin, "admin", "DELETE /v1/functions/hello", "done"),
            json!(["GET /v1/functions", "unauthorized", null, null, null]),
        ]
    );
    // What a change leaves is what the next one finds.
    let changed = |entry: usize| all[before + entry]["changed"][0].clone();
    let (made, split, gone) = (changed(0), changed(2), changed(4));
    assert_eq!(
        (&made["kind"], &made["name"], &made["before"]),
        (&"functions".into(), &"hello".into(), &Value::Null)
    );
    assert!(made["after"].as_str().unwrap().starts_with("sha256:"), "{made}");
    assert_eq!((&split["before"], &gone["before"]), (&made["after"], &split["after"]));
    assert_ne!(made["after"], split["after"]);
    assert_eq!(gone["after"], Value::Null);
    assert!(all.iter().all(|entry| entry["from"] == "127.0.0.1" || entry["role"].is_null()), "{all:#?}");
    let text = serde_json::to_string(&all).unwrap();
    for who in [&operator, &admin, &other, &viewer, &wrong] {
        let secret = who.key.as_ref().unwrap().split('_').nth(2).unwrap();
        assert!(!text.contains(secret), "a secret is told");
    }

    // A tenant's admin sees what concerns the tenant, by whomever.
    let theirs = entries(&server, &admin).await;
    assert!(theirs.len() >= 6 && theirs.iter().all(|entry| entry["tenant"] == "acme"), "{theirs:#?}");
    assert!(theirs.iter().any(|entry| entry["request"] == "PUT /v1/tenants/acme"), "{theirs:#?}");
    assert_eq!(entries(&server, &operator.meaning("acme")).await, theirs);
    assert!(entries(&server, &other).await.iter().all(|entry| entry["tenant"] == "other"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_in_parts() {
    let (server, operator) = two_tenants().await;
    for _ in 0..5 {
        operator.asks(&server, "PUT", "/v1/tenants/acme", Some(json!({}))).await;
    }
    let get = async |query: &str| operator.asks(&server, "GET", &format!("/v1/audit?{query}"), None).await;
    let numbers = |log: &Value| -> Vec<i64> {
        log["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["entry"]["number"].as_i64().unwrap())
            .collect()
    };
    let all = numbers(&get("after=0").await.json);
    assert_eq!(all, (1..=all.len() as i64).collect::<Vec<_>>());
    let (mut seen, mut after) = (Vec::new(), json!(0));
    while !after.is_null() {
        let part = get(&format!("after={after}&limit=3")).await.json;
        seen.extend(numbers(&part));
        after = part["next"].clone();
    }
    assert_eq!(seen, all);
    assert_eq!(numbers(&get("limit=2").await.json), all[all.len() - 2..], "without a number, the newest");
    assert_eq!(numbers(&get("key=none").await.json), [] as [i64; 0]);
    assert_eq!(
        numbers(&get(&format!("key={}", operator.id())).await.json).len(),
        all.len() - 1,
        "but for its own key's"
    );
    for query in ["limit=0", "limit=1001", "after=-1", "limit=many", "from=1"] {
        let answer = get(query).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_request"), "{query}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_altered_is_found_out() {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let verify = async |more: &[&str]| {
        let process = Process::serve(data.path()).await;
        let output = process.command(&[&["audit", "verify"], more].concat()).await;
        let shown = process.command(&["audit"]).await;
        process.kill().await;
        assert!(shown.status.success() || !output.status.success());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr) + &text(shown.stdout))
    };
    let process = Process::serve(data.path()).await;
    for weight in 1..=4 {
        let set = process.command(&["tenants", "set", "default", "--weight", &weight.to_string()]).await;
        assert!(set.status.success());
    }
    process.kill().await;
    let (code, head, shown) = verify(&[]).await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(head.starts_with("4:") && shown.contains("PUT /v1/tenants/default"), "{head} {shown}");

    // Who can write the database can cut off its end; who has noted the newest entry sees it.
    let change = async |statement: &'static str| {
        let url = format!("sqlite://{}", data.path().join("weir.db").display());
        let database = sqlx::SqlitePool::connect(&url).await.unwrap();
        assert!(sqlx::query(statement).execute(&database).await.unwrap().rows_affected() > 0);
        database.close().await;
    };
    change("DELETE FROM audit WHERE number = 4").await;
    assert_eq!(verify(&[]).await.0, Some(0));
    let (code, _, error) = verify(&["--head", head.trim()]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("entry 4 was noted, and the log ends at 3"), "{error}");

    change("UPDATE audit SET entry = replace(entry, '127.0.0.1', '127.0.0.9') WHERE number = 2").await;
    let (code, _, error) = verify(&[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("entry 2 is not what was written"), "{error}");
    change("DELETE FROM audit WHERE number = 2").await;
    let (code, _, error) = verify(&[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("entry 2 is missing"), "{error}");
}
