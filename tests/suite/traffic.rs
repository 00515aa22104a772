//! Which revision serves a call, and changes of that under load: canaries, sticky callers, rollback, retention, conditions,
//! host names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use tract_onnx::pb::tensor_proto::DataType;
use weir_tests::guests::Behaviour;
use weir_tests::{Answer, Process, Server, guests, onnx, until};

/// Deploys the guest `echo` as a version that it says of itself, with so much of the traffic.
async fn version(server: &Server, number: u32, percent: u8) -> Answer {
    let config =
        json!({ "env": { "VERSION": number.to_string() }, "reuse": 1000, "limits": { "log_bytes": 0 } });
    deploy(server, "echo", std::fs::read(guests::ECHO).unwrap(), config, percent).await
}

async fn deploy(server: &Server, name: &str, component: Vec<u8>, config: Value, percent: u8) -> Answer {
    let form = Form::new().text("config", config.to_string()).part("component", Part::bytes(component));
    let path = format!("/v1/functions/{name}/revisions?traffic={percent}");
    server.send(server.request(Method::POST, &path).multipart(form)).await
}

/// The version that answers a call, with a header or without.
async fn answers(server: &Server, user: Option<&str>) -> String {
    let mut call = server.request(Method::GET, "/fn/default/echo/");
    if let Some(user) = user {
        call = call.header("x-user", user);
    }
    let answer = server.send(call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json["env"]["VERSION"].as_str().unwrap().to_owned()
}

/// How many of so many calls each version answers.
async fn counts(server: &Server, calls: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut all = futures::stream::iter(0..calls).map(|_| answers(server, None)).buffer_unordered(32);
    while let Some(version) = all.next().await {
        *counts.entry(version).or_default() += 1;
    }
    counts
}

fn revisions(status: &Value) -> Vec<u64> {
    let revisions = status["revisions"].as_array().unwrap();
    revisions.iter().map(|revision| revision["revision"].as_u64().unwrap()).collect()
}

async fn rollback(server: &Server, body: Option<Value>) -> Answer {
    let request = server.request(Method::POST, "/v1/functions/echo/rollback");
    server.send(body.map_or(request.try_clone().unwrap(), |body| request.json(&body))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_percent_of_ten_thousand_calls() {
    let server = Server::start().await;
    let first = version(&server, 1, 10).await;
    assert_eq!(first.json["traffic"], json!([{ "revision": 1, "weight": 100 }]), "there is no other");
    let canary = version(&server, 2, 10).await;
    assert_eq!(canary.status, 201, "{}", canary.text());
    let split = json!([{ "revision": 1, "weight": 90 }, { "revision": 2, "weight": 10 }]);
    assert_eq!(canary.json["traffic"], split);
    let counts = counts(&server, 10_000).await;
    // 10,000 draws of one in ten have a standard deviation of 30; four of them.
    assert!((880..=1120).contains(&counts["2"]) && counts["1"] + counts["2"] == 10_000, "{counts:?}");
    let status = server.status("echo").await;
    assert_eq!((&status["failures"], &status["rollback_to"]), (&json!(0), &json!(1)));

    for wrong in ["101", "-1", "x"] {
        let path = format!("/v1/functions/echo/revisions?traffic={wrong}");
        let refused = server.post(&path, "").await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{wrong}");
        assert!(refused.text().contains("a percentage, 0 to 100"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_a_header_stay_with_their_revision() {
    let server = Server::start().await;
    version(&server, 1, 100).await;
    version(&server, 2, 0).await;
    assert_eq!(answers(&server, None).await, "1", "a revision without traffic waits");
    let split = async |one: u32, two: u32, header: &str| {
        let weights = json!([{ "revision": 1, "weight": one }, { "revision": 2, "weight": two }]);
        let body = json!({ "traffic": weights, "sticky_header": header });
        server.put("/v1/functions/echo/traffic", body).await
    };
    let refused = split(1, 1, "x user").await;
    assert_eq!((refused.status, refused.code()), (422, "invalid_config"));
    assert!(refused.text().contains("`x user` is not a header's name"), "{}", refused.text());

    let set = split(50, 50, "X-User").await;
    assert_eq!((set.status, &set.json["sticky_header"]), (200, &json!("x-user")), "{}", set.text());
    let users: Vec<String> = (0..60).map(|user| format!("user-{user}")).collect();
    let mut before = vec![];
    for user in &users {
        let version = answers(&server, Some(user)).await;
        for _ in 0..3 {
            assert_eq!(answers(&server, Some(user)).await, version, "{user}");
        }
        before.push(version);
    }
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 2, "both have some of them");
    assert_eq!(counts(&server, 20).await.len(), 2, "calls without the header are shared out as ever");

    assert_eq!(split(50, 150, "x-user").await.status, 200);
    let mut moved = 0;
    for (user, before) in users.iter().zip(&before) {
        let after = answers(&server, Some(user)).await;
        assert!(after == *before || after == "2", "{user} left the revision that grew");
        moved += usize::from(after != *before);
    }
    assert!(moved > 0, "some have moved to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_deploy_again_gets_the_traffic_that_it_says() {
    let server = Server::start().await;
    version(&server, 1, 100).await;
    version(&server, 2, 100).await;
    let again = version(&server, 2, 100).await;
    assert_eq!((again.status, &again.json["revision"]), (200, &json!(2)), "{}", again.text());
    let tag = again.headers["etag"].clone();
    assert_eq!(rollback(&server, None).await.status, 200);
    assert_eq!(answers(&server, None).await, "1");
    let back = version(&server, 2, 100).await;
    assert_eq!((back.status, &back.json["revision"]), (200, &json!(2)), "{}", back.text());
    assert_ne!(back.headers["etag"], tag, "something has changed");
    assert_eq!(answers(&server, None).await, "2", "it says that it gets the calls, and does");

    assert_eq!(rollback(&server, None).await.status, 200);
    let traffic = async || server.status("echo").await["traffic"].clone();
    let canary = json!([{ "revision": 1, "weight": 80 }, { "revision": 2, "weight": 20 }]);
    for _ in 0..2 {
        assert_eq!(version(&server, 2, 20).await.status, 200);
        assert_eq!(traffic().await, canary);
    }
    assert_eq!(version(&server, 2, 0).await.status, 200);
    assert_eq!(traffic().await, canary, "without traffic of its own nothing moves");
    version(&server, 3, 0).await;
    assert_eq!(version(&server, 3, 50).await.status, 200);
    let three = json!([{ "revision": 1, "weight": 40 }, { "revision": 2, "weight": 10 }, { "revision": 3, "weight": 50 }]);
    assert_eq!(traffic().await, three);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_is_sent_again_with_its_idempotency_key_is_done_once() {
    let server = Server::start().await;
    version(&server, 1, 100).await;
    let back = async |once: &str, body: Option<Value>| {
        let request = server.request(Method::POST, "/v1/functions/echo/rollback");
        let request = request.header("idempotency-key", once);
        server.send(body.map_or(request.try_clone().unwrap(), |body| request.json(&body))).await
    };
    assert_eq!(back("a", None).await.code(), "conflict", "there is nothing to go back to");
    version(&server, 2, 100).await;
    let all_to = |revision: u64| json!([{ "revision": revision, "weight": 100 }]);
    assert_eq!(back("a", None).await.json["traffic"], all_to(1), "what failed was not done");
    let again = back("a", None).await;
    assert_eq!((again.status, again.code()), (409, "conflict"), "{}", again.text());
    assert!(again.text().contains("gave all of the traffic to revision 1"), "{}", again.text());
    assert_eq!(answers(&server, None).await, "1");
    assert_eq!(back("a", Some(json!({ "revision": 2 }))).await.code(), "idempotency_mismatch");
    assert_eq!(back("not one", None).await.code(), "invalid_request");
    assert_eq!(answers(&server, None).await, "1");
    assert_eq!(back("b", None).await.json["traffic"], all_to(2), "another is another");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_revisions_come_and_go() {
    let server = Server::with(|settings| settings.functions.keep_revisions = 2.try_into().unwrap()).await;
    let server = Arc::new(server);
    version(&server, 1, 100).await;
    assert_eq!(rollback(&server, None).await.code(), "conflict", "there is nothing to go back to");
    version(&server, 2, 100).await;
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (server, done) = (Arc::clone(&server), Arc::clone(&done));
            tokio::spawn(async move {
                let mut calls = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    answers(&server, None).await;
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for round in 0..20 {
        let to = if round % 2 == 0 { 1 } else { 2 };
        let back = rollback(&server, None).await;
        assert_eq!(back.json["traffic"], json!([{ "revision": to, "weight": 100 }]), "{}", back.text());
        assert_eq!(answers(&server, None).await, to.to_string(), "at once");
    }
    for number in 3..=8 {
        assert_eq!(version(&server, number, 100).await.status, 201);
        assert_eq!(answers(&server, None).await, number.to_string());
    }
    done.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert!(calls > 100, "{calls} calls");
    let status = server.status("echo").await;
    assert_eq!((&status["failures"], revisions(&status)), (&json!(0), vec![7, 8]));
    let missing = rollback(&server, Some(json!({ "revision": 1 }))).await;
    assert_eq!((missing.status, missing.code()), (422, "invalid_config"));
    assert!(missing.text().contains("there is no revision 1; there are 7, 8"), "{}", missing.text());
    assert_eq!(rollback(&server, Some(json!({ "revision": 7 }))).await.status, 200);
    assert_eq!(answers(&server, None).await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_does_not_start_takes_no_calls_from_one_that_does() {
    let server = Server::start().await;
    version(&server, 1, 100).await;
    let broken = || Behaviour::StartTraps.component().bytes();
    let blobs = || std::fs::read_dir(server.data.path().join("blobs")).unwrap().count();
    for percent in [100, 1] {
        let refused = deploy(&server, "echo", broken(), json!({}), percent).await;
        assert_eq!((refused.status, refused.code()), (503, "start_failed"), "{}", refused.text());
        let says = "revision 2 does not start, so nothing has changed";
        assert!(refused.text().contains(says), "{}", refused.text());
    }
    assert_eq!((revisions(&server.status("echo").await), blobs()), (vec![1], 1), "nothing of it is left");

    // One may lie there, but gets no calls.
    assert_eq!(deploy(&server, "echo", broken(), json!({}), 0).await.status, 201);
    let half = json!({ "traffic": [{ "revision": 1, "weight": 1 }, { "revision": 2, "weight": 1 }] });
    let refused = server.put("/v1/functions/echo/traffic", half).await;
    assert_eq!((refused.status, refused.code()), (503, "start_failed"), "{}", refused.text());
    assert_eq!(rollback(&server, Some(json!({ "revision": 2 }))).await.code(), "start_failed");
    assert_eq!(counts(&server, 20).await, BTreeMap::from([("1".to_owned(), 20)]));
    assert_eq!(server.status("echo").await["failures"], 0);
    // A first revision takes the place of none.
    assert_eq!(server.deploy_bytes("other", broken(), json!({})).await.status, 201);
    assert_eq!(server.call("other", "/", "").await.code(), "start_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revisions_go_and_their_calls_end_as_they_would() {
    let server = Server::with(|settings| settings.functions.keep_revisions = 2.try_into().unwrap()).await;
    let server = Arc::new(server);
    let bytes = |guest: &str| std::fs::read(guest).unwrap();
    // One call at a time: the second waits for the first.
    let config = json!({ "max_concurrency": 1 });
    assert_eq!(deploy(&server, "f", bytes(guests::TROUBLE), config, 100).await.status, 201);
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.call("f", "/wait=1000", "").await })
        })
        .collect();
    until("both calls are there", async || server.status("f").await["calls"] == 2).await;
    for guest in [guests::HELLO, guests::ECHO, guests::NN] {
        assert_eq!(deploy(&server, "f", bytes(guest), json!({}), 100).await.status, 201);
    }
    assert_eq!(revisions(&server.status("f").await), [3, 4]);
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "waited"), "{}", answer.text());
    }
    let files = || std::fs::read_dir(server.data.path().join("blobs")).unwrap().count();
    until("the components of old revisions are gone", async || files() == 2).await;

    // Those that get calls stay, and the numbers go on.
    let both = json!({ "traffic": [{ "revision": 3, "weight": 1 }, { "revision": 4, "weight": 1 }] });
    assert_eq!(server.put("/v1/functions/f/traffic", both).await.status, 200);
    assert_eq!(deploy(&server, "f", bytes(guests::HELLO), json!({}), 50).await.json["revision"], 5);
    assert_eq!(revisions(&server.status("f").await), [3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_function_is_gone_at_once_and_its_calls_end_as_they_would() {
    let server = Arc::new(Server::start().await);
    server.deploy("f", guests::TROUBLE, json!({ "max_concurrency": 4 })).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.call("f", "/wait=200", "").await })
        })
        .collect();
    until("all calls are there", async || server.status("f").await["calls"] == 20).await;
    assert_eq!(server.delete("/v1/functions/f").await.status, 204);
    assert_eq!(server.call("f", "/fine", "").await.code(), "not_found");
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "waited"), "{}", answer.text());
    }
    let files = || std::fs::read_dir(server.data.path().join("blobs")).unwrap().count();
    until("its component is gone", async || files() == 0).await;
    until("its sandboxes are gone", async || server.metric("weir_sandboxes").await == 0.0).await;
}

fn tag(answer: &Answer) -> String {
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    answer.headers["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_made_of_what_the_client_has_seen() {
    let server = Server::start().await;
    let ask = async |method: Method, path: &str, header: &str, tag: &str, body: Value| {
        let request = server.request(method, path).header(header, tag);
        server.send(if body.is_null() { request } else { request.json(&body) }).await
    };
    let fails = |answer: &Answer| {
        assert_eq!((answer.status, answer.code()), (412, "precondition_failed"), "{}", answer.text());
    };
    let (path, traffic) = ("/v1/functions/echo", "/v1/functions/echo/traffic");
    let component = || {
        let form = Form::new().part("component", Part::bytes(std::fs::read(guests::ECHO).unwrap()));
        server.request(Method::POST, "/v1/functions/echo/revisions").multipart(form)
    };
    fails(&server.send(component().header("if-match", "*")).await);
    let made = server.send(component().header("if-none-match", "*")).await;
    let first = tag(&made);
    assert_eq!(made.status, 201);
    assert_eq!(tag(&server.get(path).await), first);
    fails(&server.send(component().header("if-none-match", "*")).await);
    let second = tag(&version(&server, 2, 100).await);
    assert_ne!(first, second);
    fails(&server.send(component().header("if-match", &first)).await);

    let one = json!({ "traffic": [{ "revision": 1, "weight": 1 }] });
    fails(&ask(Method::PUT, traffic, "if-match", &first, one.clone()).await);
    let third = tag(&ask(Method::PUT, traffic, "if-match", &second, one).await);
    let back = "/v1/functions/echo/rollback";
    fails(&ask(Method::POST, back, "if-match", &second, Value::Null).await);
    let fourth = tag(&ask(Method::POST, back, "if-match", &third, Value::Null).await);
    fails(&ask(Method::DELETE, path, "if-match", &third, Value::Null).await);
    assert_eq!(tag(&server.get(path).await), fourth, "what failed has changed nothing");
    assert_eq!(
        ask(Method::DELETE, path, "if-match", "nonsense", Value::Null).await.code(),
        "invalid_request"
    );
    assert_eq!(ask(Method::DELETE, path, "if-match", &fourth, Value::Null).await.status, 204);
    // One that is made again is another, though it counts from 1 as well.
    tag(&version(&server, 1, 100).await);
    fails(&ask(Method::DELETE, path, "if-match", &first, Value::Null).await);

    let model = "/v1/models/double";
    let bytes = || onnx::double(DataType::Float, &[onnx::Axis::Fixed(2)]);
    let upload = || server.request(Method::PUT, "/v1/models/double?format=onnx").body(bytes());
    let first = tag(&server.send(upload().header("if-none-match", "*")).await);
    fails(&server.send(upload().header("if-none-match", "*")).await);
    assert_eq!(tag(&server.get(model).await), first);
    let config = "/v1/models/double/config";
    let second = tag(&ask(Method::PUT, config, "if-match", &first, json!({ "max_batch": 4 })).await);
    fails(&ask(Method::PUT, config, "if-match", &first, json!({})).await);
    fails(&server.send(upload().header("if-match", &first)).await);
    fails(&ask(Method::DELETE, model, "if-match", &first, Value::Null).await);
    assert_eq!(server.get(model).await.json["config"]["max_batch"], 4);
    assert_eq!(ask(Method::DELETE, model, "if-match", &second, Value::Null).await.status, 204);

    let tenant = "/v1/tenants/acme";
    let first = tag(&ask(Method::PUT, tenant, "if-none-match", "*", json!({ "weight": 2 })).await);
    assert_eq!(tag(&server.get(tenant).await), first);
    let second = tag(&ask(Method::PUT, tenant, "if-match", &first, json!({ "weight": 3 })).await);
    fails(&ask(Method::PUT, tenant, "if-match", &first, json!({ "weight": 4 })).await);
    assert_eq!(server.get(tenant).await.json["weight"], 3);
    assert_eq!(tag(&server.get(tenant).await), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_changes_of_one_thing_seen_one_is_made() {
    let server = Arc::new(Server::start().await);
    version(&server, 1, 100).await;
    let tag = tag(&version(&server, 2, 100).await);
    let changes = (1..=20).map(|weight| {
        let (server, tag) = (Arc::clone(&server), tag.clone());
        tokio::spawn(async move {
            let body = json!({ "traffic": [{ "revision": 2, "weight": weight }] });
            let request = server.request(Method::PUT, "/v1/functions/echo/traffic").json(&body);
            server.send(request.header("if-match", tag)).await.status
        })
    });
    let statuses: Vec<u16> =
        futures::future::join_all(changes).await.into_iter().map(|status| status.unwrap()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 412].contains(status)), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_have_host_names() {
    let (server, key) = Server::with_keys_and(|settings| {
        settings.http.domain = Some("weir.test".to_owned());
        settings.http.hostnames = vec!["*.shop.test".to_owned()];
    })
    .await;
    for tenant in ["acme", "other"] {
        let made = server.request(Method::PUT, &format!("/v1/tenants/{tenant}")).bearer_auth(&key);
        assert_eq!(server.send(made.json(&json!({}))).await.status, 201);
    }
    let deploy = async |tenant: &str, name: &str, config: Value| {
        let component = Part::bytes(std::fs::read(guests::ECHO).unwrap());
        let form = Form::new().text("config", config.to_string()).part("component", component);
        let request = server.request(Method::POST, &format!("/v1/functions/{name}/revisions"));
        server.send(request.bearer_auth(&key).header("weir-tenant", tenant).multipart(form)).await
    };
    let ask = async |host: &str, path: &str, key: Option<&str>| {
        let request = server.request(Method::GET, path).header("host", host);
        server.send(key.map_or(request.try_clone().unwrap(), |key| request.bearer_auth(key))).await
    };
    let status = async |name: &str| {
        let request = server.request(Method::GET, &format!("/v1/functions/{name}")).bearer_auth(&key);
        server.send(request.header("weir-tenant", "acme")).await.json
    };
    let config = json!({ "hostnames": ["www.shop.test"], "public": true });
    assert_eq!(deploy("acme", "shop", config).await.status, 201);
    assert_eq!(deploy("acme", "secret", json!({})).await.status, 201);

    for host in ["shop.acme.weir.test", "SHOP.acme.weir.test:80", "www.shop.test"] {
        let seen = ask(host, "/v1/functions?x=1", None).await;
        assert_eq!(seen.status, 200, "{host}: {}", seen.text());
        assert_eq!(
            (&seen.json["path"], &seen.json["query"]),
            (&json!("/v1/functions"), &json!([["x", "1"]]))
        );
    }
    // What a path asks for, a host asks for too.
    let refused = ask("secret.acme.weir.test", "/", None).await;
    assert_eq!((refused.status, refused.code()), (401, "unauthorized"));
    assert_eq!(ask("secret.acme.weir.test", "/", Some(&key)).await.json["path"], "/");
    assert_eq!(ask("secret.acme.weir.test", "/metrics", Some(&key)).await.json["path"], "/metrics");
    assert_eq!(ask("nothing.acme.weir.test", "/healthz", Some(&key)).await.code(), "not_found");
    assert_eq!(ask("secret.other.weir.test", "/", Some(&key)).await.code(), "not_found");
    // Other hosts are the server's own.
    for host in ["weir.test", "acme.weir.test", "other.shop.test", "a.shop.acme.weir.test"] {
        assert_eq!(ask(host, "/healthz", None).await.text(), "ok\n", "{host}");
    }

    let shown = status("shop").await;
    assert_eq!(shown["hosts"], json!(["shop.acme.weir.test", "www.shop.test"]));
    assert_eq!(shown["url"], "/fn/acme/shop/");
    let id = key.split('_').nth(1).unwrap();
    assert_eq!(shown["revisions"][0]["created_by"], id);

    let taken = deploy("other", "thief", json!({ "hostnames": ["www.shop.test"] })).await;
    assert_eq!((taken.status, taken.code()), (409, "conflict"), "{}", taken.text());
    for name in ["weir.test", "shop.acme.weir.test", "www.elsewhere.test"] {
        let refused = deploy("other", "thief", json!({ "hostnames": [name] })).await;
        assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
    }
    // A revision without the name gives it up, and so does one that is deleted.
    assert_eq!(deploy("acme", "shop", json!({ "public": true })).await.status, 201);
    assert_eq!(ask("www.shop.test", "/healthz", None).await.text(), "ok\n");
    let config = json!({ "hostnames": ["www.shop.test"], "public": true, "env": { "WHO": "other" } });
    assert_eq!(deploy("other", "shop", config).await.status, 201);
    assert_eq!(ask("www.shop.test", "/", None).await.json["env"]["WHO"], "other");
    let request = server.request(Method::POST, "/v1/functions/shop/rollback").bearer_auth(&key);
    let back = server.send(request.header("weir-tenant", "acme")).await;
    assert_eq!((back.status, back.code()), (409, "conflict"), "its old revision has the name too");
    let request = server.request(Method::DELETE, "/v1/functions/shop").bearer_auth(&key);
    assert_eq!(server.send(request.header("weir-tenant", "other")).await.status, 204);
    assert_eq!(ask("www.shop.test", "/healthz", None).await.text(), "ok\n");
    let request = server.request(Method::POST, "/v1/functions/shop/rollback").bearer_auth(&key);
    assert_eq!(server.send(request.header("weir-tenant", "acme")).await.status, 200);
    assert_eq!(ask("www.shop.test", "/", None).await.json["path"], "/");
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_and_host_names_survive_a_restart() {
    let change = |settings: &mut weir::config::Settings| {
        settings.http.hostnames = vec!["www.shop.test".to_owned()];
    };
    let server = Server::with(change).await;
    version(&server, 1, 100).await;
    let config = json!({ "env": { "VERSION": "2" }, "hostnames": ["www.shop.test"] });
    assert_eq!(deploy(&server, "echo", std::fs::read(guests::ECHO).unwrap(), config, 25).await.status, 201);
    let weights = json!([{ "revision": 1, "weight": 3 }, { "revision": 2, "weight": 1 }]);
    let body = json!({ "traffic": weights, "sticky_header": "x-user" });
    assert_eq!(server.put("/v1/functions/echo/traffic", body).await.status, 200);
    let mut before = vec![];
    for user in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        before.push((user, answers(&server, Some(user)).await));
    }
    let (shown, etag) = (server.status("echo").await, tag(&server.get("/v1/functions/echo").await));
    let data = server.stop().await;
    let mut settings = weir::config::Settings::default();
    settings.sandbox.sandboxes = 200.try_into().unwrap();
    settings.gpu.mode = weir::config::GpuMode::Off;
    change(&mut settings);
    let server = Server::on(data, settings).await;
    let again = server.status("echo").await;
    for field in ["traffic", "sticky_header", "rollback_to", "hosts"] {
        assert_eq!(again[field], shown[field], "{field}");
    }
    assert_eq!(tag(&server.get("/v1/functions/echo").await), etag);
    for (user, version) in before {
        assert_eq!(answers(&server, Some(user)).await, version, "{user}");
    }
    let by_host = server.request(Method::GET, "/x").header("host", "www.shop.test");
    assert_eq!(server.send(by_host).await.json["path"], "/x");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shares_traffic_out_and_rolls_it_back() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::serve(data.path()).await;
    let run = async |arguments: &[&str]| {
        let output = server.command(arguments).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said + &String::from_utf8_lossy(&output.stderr))
    };
    assert!(run(&["deploy", "echo", guests::ECHO]).await.0);
    let (_, said) = run(&["deploy", "echo", guests::ECHO, "--env", "A=1", "--traffic", "10"]).await;
    assert!(said.contains("traffic: 1=90 2=10"), "{said}");
    let (_, said) = run(&["traffic", "echo", "1=1", "2=1", "--sticky-header", "x-user"]).await;
    assert_eq!(said, "echo: 1=1 2=1\ncallers stay by their header x-user\n");
    let (_, said) = run(&["rollback", "echo"]).await;
    assert_eq!(said, "echo: 1=100\ncallers stay by their header x-user\n");
    let (_, said) = run(&["rollback", "echo", "--to", "2"]).await;
    assert!(said.starts_with("echo: 2=100\n"), "{said}");
    let (done, said) = run(&["rollback", "echo", "--to", "9"]).await;
    assert!(!done && said.contains("there is no revision 9; there are 1, 2"), "{said}");
    let (done, said) = run(&["traffic", "echo", "1:1"]).await;
    assert!(!done && said.contains("write REVISION=WEIGHT"), "{said}");
    server.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_is_deployed_stays_while_another_function_with_it_is_deleted() {
    let server = Server::start().await;
    assert_eq!(server.deploy("kept", guests::HELLO, json!({})).await.status, 201);
    for round in 0..8 {
        assert_eq!(server.deploy("gone", guests::NN, json!({})).await.status, 201);
        let config = json!({ "env": { "ROUND": round.to_string() } });
        let (deployed, deleted) =
            tokio::join!(server.deploy("kept", guests::NN, config), server.delete("/v1/functions/gone"));
        assert_eq!((deployed.status, deleted.status), (201, 204), "{}", deployed.text());
        assert_eq!(server.deploy("kept", guests::HELLO, json!({})).await.status, 201);
        // Of both functions nothing is left that has the component but earlier revisions.
        assert_eq!(server.delete("/v1/functions/kept").await.status, 204);
        assert_eq!(server.deploy("kept", guests::HELLO, json!({})).await.status, 201);
    }
}
