//! The description of the HTTP surface, lists in pages, bodies' limits, and requests that are done once. What the description
//! says of each answer is tried by `make api-test`.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use weir::units::Size;
use weir_tests::{Answer, Process, Server, guests};

#[tokio::test(flavor = "multi_thread")]
async fn the_description_has_every_route_and_needs_no_key() {
    let (server, _) = Server::with_keys().await;
    let answer = server.get("/openapi.json").await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (200, &"application/json".parse().unwrap()));
    assert_eq!(answer.json["openapi"], "3.1.0");
    let paths = answer.json["paths"].as_object().unwrap();
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("/fn/")) {
        described
            .extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    let mut routes: Vec<(String, String)> =
        server.routes.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    routes.retain(|(_, path)| !path.starts_with("/fn/"));
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
    assert!(paths["/fn/{tenant}/{function}/{path}"]["post"]["responses"]["default"].is_object());

    let printed = Process::run(&["openapi"], "http://127.0.0.1:1", server.data.path()).await;
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), answer.text());
}

/// All of a list, by pages of two.
async fn pages(server: &Server, path: &str, things: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("limit", "2".to_owned())];
        query.extend(after.map(|after| ("after", after)));
        let page = server.send(server.request(Method::GET, path).query(&query)).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page_of = page.json[things].as_array().unwrap();
        assert!((1..=2).contains(&page_of.len()), "{}", page.text());
        all.extend(page_of.iter().cloned());
        after = page.json["next"].as_str().map(str::to_owned);
        if after.is_none() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_are_filtered() {
    let server = Server::start().await;
    for name in ["a1", "a2", "b1", "b2", "b3"] {
        server.deploy(name, guests::HELLO, json!({})).await;
        assert_eq!(server.put(&format!("/v1/tenants/{name}"), json!({})).await.status, 201);
    }
    let names = |things: &[Value], field: &str| -> Vec<String> {
        things.iter().map(|thing| thing[field].as_str().unwrap().to_owned()).collect()
    };
    let functions = pages(&server, "/v1/functions", "functions").await;
    assert_eq!(names(&functions, "function"), ["a1", "a2", "b1", "b2", "b3"]);
    let tenants = pages(&server, "/v1/tenants", "tenants").await;
    assert_eq!(names(&tenants, "tenant"), ["a1", "a2", "b1", "b2", "b3", "default"]);
    let whole = server.get("/v1/functions").await;
    assert_eq!((whole.json["functions"].as_array().unwrap().len(), whole.json.get("next")), (5, None));
    let b = server.get("/v1/functions?prefix=b&limit=2").await;
    assert_eq!(names(b.json["functions"].as_array().unwrap(), "function"), ["b1", "b2"]);
    assert_eq!(b.json["next"], "b2");
    assert_eq!(server.get("/fn/default/a1/").await.status, 200);
    let ready = server.get("/v1/functions?state=ready&prefix=a1").await;
    assert_eq!(names(ready.json["functions"].as_array().unwrap(), "function"), ["a1"]);
    let failed = server.get("/v1/functions?state=failed").await;
    assert_eq!(failed.json, json!({ "functions": [] }));
    for query in
        ["limit=0", "limit=1001", "limit=many", "limit=", "state=asleep", "page=2", "limit=1&limit=2"]
    {
        for list in ["functions", "tenants"] {
            let refused = server.get(&format!("/v1/{list}?{query}")).await;
            assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{list} {query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_has_a_limit() {
    let server = Server::with(|settings| {
        settings.limits.component_bytes = Size::mib(1);
        settings.limits.model_bytes = Size::mib(1);
    })
    .await;
    let large = || format!("{{\"label\": \"{}\"}}", "x".repeat(4 << 20));
    let mut reading = Vec::new();
    for (method, path) in server.routes.iter().filter(|(method, _)| ["POST", "PUT", "PATCH"].contains(method))
    {
        let at = path.replace("{name}", "a").replace("{id}", "0123456789ab");
        let kind = if path.ends_with("/revisions") { "application/wasm" } else { "application/json" };
        let query = if *path == "/v1/models/{name}" { "?format=onnx" } else { "" };
        let request = server.request(method.parse().unwrap(), &format!("{at}{query}"));
        let answer = server.send(request.header("content-type", kind).body(large())).await;
        match (*path, answer.status) {
            // It reads none.
            ("/v1/backup", 200) => {}
            // Without keys there is none to make.
            ("/v1/keys" | "/v1/keys/{id}/rotate", 404) => {}
            (_, status) => {
                assert_eq!((status, answer.code()), (413, "too_large"), "{method} {path}: {}", answer.text());
                reading.push(*path);
            }
        }
    }
    assert!(reading.len() >= 6, "{reading:?}");
    let (server, key) = Server::with_keys().await;
    for path in ["/v1/keys", "/v1/keys/0123456789ab/rotate"] {
        let request = server.request(Method::POST, path).bearer_auth(&key);
        let answer = server.send(request.header("content-type", "application/json").body(large())).await;
        assert_eq!((answer.status, answer.code()), (413, "too_large"), "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_once_for_each_idempotency_key() {
    let (server, key) = Server::with_keys().await;
    let ask = async |path: &str, once: &str, body: Value| -> Answer {
        let request: RequestBuilder = server.request(Method::POST, path).bearer_auth(&key);
        server.send(request.header("idempotency-key", once).json(&body)).await
    };
    let viewer = json!({ "role": "viewer" });
    // One that is refused was not done, and may be sent again.
    assert_eq!(ask("/v1/keys", "a", json!({ "role": "admin" })).await.status, 422);
    let made = ask("/v1/keys", "a", viewer.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json["id"].as_str().unwrap();
    let again = ask("/v1/keys", "a", viewer.clone()).await;
    assert_eq!((again.status, again.code()), (409, "conflict"));
    assert!(again.text().contains(id) && !again.text().contains(made.json["key"].as_str().unwrap()));
    let other = ask("/v1/keys", "a", json!({ "role": "viewer", "label": "other" })).await;
    assert_eq!((other.status, other.code()), (422, "idempotency_mismatch"));
    let rotate = format!("/v1/keys/{id}/rotate");
    assert_eq!(ask(&rotate, "a", json!({})).await.code(), "idempotency_mismatch");
    assert_eq!(ask(&rotate, "b", json!({})).await.status, 201);
    assert_eq!(ask(&rotate, "b", json!({})).await.code(), "conflict");
    assert_eq!(ask("/v1/keys", "not one", viewer).await.code(), "invalid_request");
    let listed = server.send(server.request(Method::GET, "/v1/keys?role=viewer").bearer_auth(&key)).await;
    assert_eq!(listed.json["keys"].as_array().unwrap().len(), 2, "{}", listed.text());
    let page = server.send(server.request(Method::GET, "/v1/keys?limit=1").bearer_auth(&key)).await;
    let next = page.json["next"].as_str().unwrap();
    let rest = server.request(Method::GET, "/v1/keys").query(&[("after", next)]).bearer_auth(&key);
    assert_eq!(server.send(rest).await.json["keys"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_body_or_a_path_is_said_as_a_problem() {
    let (server, key) = Server::with_keys().await;
    let ask = async |method: Method, path: &str, kind: &str, body: &str| {
        let request = server.request(method, path).bearer_auth(&key).header("content-type", kind);
        let answer = server.send(request.body(body.to_owned())).await;
        (answer.status, answer.code().to_owned())
    };
    let is = |status: u16, code: &str| (status, code.to_owned());
    let role = r#"{"role": "viewer"}"#;
    let unsupported = is(415, "unsupported_media_type");
    assert_eq!(ask(Method::POST, "/v1/keys", "text/plain", role).await, unsupported);
    assert_eq!(ask(Method::DELETE, "/v1/keys/%FF", "text/plain", "").await, is(400, "invalid_name"));
    // A time that no clock can say: its parts can be read, and their sum cannot be had.
    let time = r#"{"role": "viewer", "expires_in": "18446744073709551615s 1000000000ns"}"#;
    assert_eq!(ask(Method::POST, "/v1/keys", "application/json", time).await, is(422, "invalid_config"));
    assert_eq!(ask(Method::POST, "/v1/keys", "application/json", "{").await, is(400, "invalid_request"));
    // The sentence is about the request, and not about who read it.
    for (method, path, kind, body, says) in [
        (
            Method::POST,
            "/v1/keys",
            "text/plain",
            role,
            "the body is JSON here: send `Content-Type: application/json`",
        ),
        (
            Method::POST,
            "/v1/keys",
            "application/json",
            "{",
            "the body is not JSON: EOF while parsing an object",
        ),
        (
            Method::PUT,
            "/v1/tenants/a",
            "application/json",
            r#"{"queue": -1}"#,
            "queue: invalid value: integer `-1`",
        ),
        (Method::GET, "/v1/tenants?limit=0", "", "", "limit: limit is 0; it must be 1 to 1000"),
    ] {
        let request = server.request(method, path).bearer_auth(&key).header("content-type", kind);
        let answer = server.send(request.body(body)).await;
        let detail = answer.json["detail"].as_str().unwrap();
        assert!(detail.starts_with(says), "{detail}");
    }
}
