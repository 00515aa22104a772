//! Keys: shown once, rotated, revoked, lost; and what one that has ended can still do.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use weir_tests::{Process, Server, until};

use crate::access::{Who, two_tenants};

/// A body whose end comes when it is told.
fn half_sent(text: &str) -> (oneshot::Sender<()>, reqwest::Body) {
    let (first, last) = (text[..1].to_owned(), text[1..].to_owned());
    let (tell, told) = oneshot::channel();
    let first = futures::stream::once(async move { Ok::<_, std::io::Error>(first) });
    let last = futures::stream::once(async move {
        told.await.unwrap();
        Ok(last)
    });
    (tell, reqwest::Body::wrap_stream(futures::StreamExt::chain(first, last)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_ends_while_its_request_comes_changes_nothing() {
    let (server, operator) = two_tenants().await;
    let acme = operator.meaning("acme");
    for (how, code) in [("revoked", "unauthorized"), ("suspended", "tenant_suspended")] {
        let thief = acme.makes(&server, json!({ "role": "admin" })).await;
        let keys = async || acme.asks(&server, "GET", "/v1/keys", None).await.json["keys"].clone();
        let of_thief = async || {
            let keys = keys().await;
            keys.as_array().unwrap().iter().find(|key| key["id"] == thief.id()).unwrap().clone()
        };
        let before = keys().await.as_array().unwrap().len();
        let (send_rest, body) = half_sent(r#"{ "role": "admin" }"#);
        let request = server.request(Method::POST, "/v1/keys").bearer_auth(thief.key.as_ref().unwrap());
        let request = request.header("content-type", "application/json").body(body);
        let asked = tokio::spawn(request.send());
        until("its head is looked at", async || of_thief().await["last_used"].is_string()).await;
        let ended = match how {
            "revoked" => operator.asks(&server, "DELETE", &format!("/v1/keys/{}", thief.id()), None).await,
            _ => {
                let suspend = json!({ "state": "suspended" });
                operator.asks(&server, "PUT", "/v1/tenants/acme", Some(suspend)).await
            }
        };
        assert!([200, 204].contains(&ended.status), "{}", ended.text());
        send_rest.send(()).unwrap();
        let answer: Value = asked.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(answer["code"], code, "{answer}");
        assert_eq!(keys().await.as_array().unwrap().len(), before, "no key was made");
        let entries = operator.asks(&server, "GET", "/v1/audit", None).await.json["entries"].clone();
        let told = entries.as_array().unwrap().last().unwrap()["entry"].clone();
        assert_eq!((&told["key"], &told["outcome"]), (&json!(thief.id()), &json!(code)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_operators_key_is_not_rotated_away_in_a_moment() {
    let (server, operator) = two_tenants().await;
    let path = format!("/v1/keys/{}/rotate", operator.id());
    let refused = operator.asks(&server, "POST", &path, Some(json!({ "overlap": "0s" }))).await;
    assert_eq!((refused.status, refused.code()), (409, "conflict"), "{}", refused.text());
    let rotated = operator.asks(&server, "POST", &path, Some(json!({ "overlap": "1m" }))).await;
    assert_eq!(rotated.status, 201, "{}", rotated.text());
    let new = Who::with(rotated.json["key"].as_str().unwrap());
    let acme = new.meaning("acme");
    let short = json!({ "role": "caller", "expires_in": "0s" });
    let zero = acme.asks(&server, "POST", "/v1/keys", Some(short));
    assert_eq!(zero.await.code(), "invalid_config");
    let wrong = new.asks(&server, "PUT", "/v1/tenants/acme", Some(json!({ "weight": 0 }))).await;
    assert_eq!(wrong.code(), "invalid_config");
    let audit = acme.asks(&server, "GET", "/v1/audit", None).await.json["entries"].clone();
    let told = audit.as_array().unwrap().last().unwrap()["entry"].clone();
    assert_eq!((&told["outcome"], &told["tenant"]), (&json!("invalid_config"), &json!("acme")), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_operators_key_is_replaced_at_a_start_and_only_when_that_is_said() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("operator.key");
    let start = async |flags: &[&str]| {
        let mut command = tokio::process::Command::new(Process::binary("weir"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data.path()).args(flags);
        let server = Process::start(command).await;
        (server, std::fs::read_to_string(&file).unwrap_or_default())
    };
    let (server, first) = start(&[]).await;
    server.kill().await;
    std::fs::remove_file(&file).unwrap();
    let (server, none) = start(&[]).await;
    server.kill().await;
    assert_eq!(none, "", "there is a key already");
    let (server, new) = start(&["--new-operator-key"]).await;
    for key in [&first, &new] {
        let listed = reqwest::Client::builder().no_proxy().build().unwrap();
        let listed =
            listed.get(format!("{}/v1/keys", server.url)).bearer_auth(key.trim()).send().await.unwrap();
        assert_eq!(listed.status(), 200);
    }
    assert_ne!(first, new);
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_shown_once_rotated_with_an_overlap_and_survive_a_restart() {
    let (server, operator) = two_tenants().await;
    let admin = operator.meaning("acme").makes(&server, json!({ "role": "admin", "label": "ci" })).await;
    let listed = admin.asks(&server, "GET", "/v1/keys", None).await;
    let secret = admin.key.as_ref().unwrap().split('_').nth(2).unwrap();
    assert!(!listed.text().contains(secret), "{}", listed.text());
    let key = &listed.json["keys"][0];
    assert_eq!([&key["label"], &key["role"], &key["tenant"]], ["ci", "admin", "acme"]);
    assert_eq!(key["created_by"], operator.id());
    assert!(key["last_used"].is_string(), "{key}");

    let rotate = async |overlap: &str| {
        let path = format!("/v1/keys/{}/rotate", admin.id());
        let rotated = admin.asks(&server, "POST", &path, Some(json!({ "overlap": overlap }))).await;
        assert_eq!(rotated.status, 201, "{}", rotated.text());
        Who::with(rotated.json["key"].as_str().unwrap())
    };
    let new = rotate("1h").await;
    let works = async |server: &Server, who: &Who| who.asks(server, "GET", "/v1/keys", None).await.status;
    assert_eq!([works(&server, &admin).await, works(&server, &new).await], [200, 200]);
    let newer = rotate("0s").await;
    assert_eq!([works(&server, &admin).await, works(&server, &newer).await], [401, 200]);
    let revoked = newer.asks(&server, "DELETE", &format!("/v1/keys/{}", new.id()), None).await;
    assert_eq!((revoked.status, works(&server, &new).await), (204, 401));

    for (who, body, code) in [
        (&newer, json!({ "role": "operator" }), 422),
        (&newer, json!({ "role": "king" }), 422),
        (&newer, json!({ "role": "caller", "functions": [] }), 422),
        (&newer, json!({ "role": "viewer", "functions": ["f"] }), 422),
        (&newer, json!({ "role": "caller", "functions": ["No!"] }), 422),
        (&operator, json!({ "role": "admin" }), 422),
        (&operator.meaning("nobody"), json!({ "role": "admin" }), 404),
    ] {
        let refused = who.asks(&server, "POST", "/v1/keys", Some(body.clone())).await;
        assert_eq!(refused.status, code, "{body}: {}", refused.text());
    }
    let last = operator.asks(&server, "DELETE", &format!("/v1/keys/{}", operator.id()), None).await;
    assert_eq!((last.status, last.code()), (409, "conflict"), "{}", last.text());

    let data = server.stop().await;
    let file = data.path().join("operator.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let server = Server::with_keys_on(Arc::clone(&data)).await;
    let listed = newer.asks(&server, "GET", "/v1/keys", None).await.json;
    let was = listed["keys"].as_array().unwrap().iter().find(|key| key["id"] == admin.id()).unwrap();
    assert!(was["last_used"].is_string(), "before the restart: {was}");
    let there = [works(&server, &operator).await, works(&server, &newer).await];
    assert_eq!((there, works(&server, &new).await, works(&server, &admin).await), ([200, 200], 401, 401));
}
