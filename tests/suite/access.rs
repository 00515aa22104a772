//! Who may do what, on a server that asks for keys.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use weir_tests::{Answer, Process, Server, guests};

/// Somebody, by the key that they send, and for an operator the tenant that they mean.
#[derive(Clone, Default)]
pub struct Who {
    pub key: Option<String>,
    tenant: Option<&'static str>,
}

impl Who {
    pub fn with(key: &str) -> Self {
        Self { key: Some(key.to_owned()), tenant: None }
    }

    pub fn meaning(&self, tenant: &'static str) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    pub async fn asks(&self, server: &Server, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut request = server.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(tenant) = self.tenant {
            request = request.header("weir-tenant", tenant);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        server.send(request).await
    }

    /// Makes a key of a role.
    pub async fn makes(&self, server: &Server, body: Value) -> Who {
        let made = self.asks(server, "POST", "/v1/keys", Some(body)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        Who::with(made.json["key"].as_str().unwrap())
    }

    pub fn id(&self) -> &str {
        self.key.as_ref().unwrap().split('_').nth(1).unwrap()
    }

    pub async fn deploys(&self, server: &Server, name: &str, config: Value) {
        self.deploys_guest(server, name, guests::HELLO, config).await;
    }

    async fn deploys_guest(&self, server: &Server, name: &str, guest: &str, config: Value) {
        let form = reqwest::multipart::Form::new()
            .text("config", config.to_string())
            .part("component", reqwest::multipart::Part::bytes(std::fs::read(guest).unwrap()));
        let request = server.request(Method::POST, &format!("/v1/functions/{name}/revisions"));
        let request = request.bearer_auth(self.key.as_ref().unwrap()).multipart(form);
        let deployed = server.send(request).await;
        assert!([200, 201].contains(&deployed.status), "{}", deployed.text());
    }
}

/// A server with tenants `acme` and `other`, and their operator.
pub async fn two_tenants() -> (Server, Who) {
    let (server, key) = Server::with_keys().await;
    let operator = Who::with(&key);
    for tenant in ["acme", "other"] {
        let made = operator.asks(&server, "PUT", &format!("/v1/tenants/{tenant}"), Some(json!({}))).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    (server, operator)
}

/// What each role is answered on each route: `y` if it comes in, `n` if it is forbidden.
/// The columns: operator, viewer of no tenant, admin, deployer, caller, viewer.
const MATRIX: &[(&str, &str, &str)] = &[
    ("GET", "/metrics", "yynnnn"),
    ("GET", "/v1/functions", "yyyyny"),
    ("GET", "/v1/functions/{name}", "yyyyny"),
    ("DELETE", "/v1/functions/{name}", "ynyynn"),
    ("POST", "/v1/functions/{name}/revisions", "ynyynn"),
    ("PUT", "/v1/functions/{name}/traffic", "ynyynn"),
    ("POST", "/v1/functions/{name}/rollback", "ynyynn"),
    ("GET", "/v1/functions/{name}/logs", "yyyyny"),
    ("GET", "/v1/models", "yyyyny"),
    ("GET", "/v1/models/{name}", "yyyyny"),
    ("PUT", "/v1/models/{name}", "ynyynn"),
    ("DELETE", "/v1/models/{name}", "ynyynn"),
    ("PUT", "/v1/models/{name}/config", "ynyynn"),
    ("GET", "/v1/tenants", "yynnnn"),
    ("GET", "/v1/tenants/{name}", "yyyyny"),
    ("PUT", "/v1/tenants/{name}", "ynnnnn"),
    ("GET", "/v1/tenants/{name}/billing", "ynynnn"),
    ("PUT", "/v1/tenants/{name}/billing", "ynnnnn"),
    ("GET", "/v1/tenants/{name}/credits", "ynynnn"),
    ("POST", "/v1/tenants/{name}/credits", "ynnnnn"),
    ("GET", "/v1/rate-cards", "yynnnn"),
    ("GET", "/v1/rate-cards/{name}", "yynnnn"),
    ("PUT", "/v1/rate-cards/{name}", "ynnnnn"),
    ("GET", "/v1/invoices/{month}", "ynynnn"),
    ("GET", "/v1/keys", "ynynnn"),
    ("POST", "/v1/keys", "ynynnn"),
    ("DELETE", "/v1/keys/{id}", "ynynnn"),
    ("POST", "/v1/keys/{id}/rotate", "ynynnn"),
    ("GET", "/v1/audit", "ynynnn"),
    ("GET", "/v1/usage", "yyyyny"),
    ("GET", "/v1/usage/records", "yyyyny"),
    ("GET", "/v1/devices", "yynnnn"),
    ("POST", "/v1/backup", "ynnnnn"),
    ("ANY", "/fn/{*call}", "ynyyyn"),
];

/// Routes that ask for nothing.
const OPEN: &[(&str, &str)] = &[("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json")];

/// The path of a route with names that nothing has.
fn concrete(path: &str) -> String {
    path.replace("{name}", "nothing")
        .replace("{id}", "nothing")
        .replace("{month}", "2026-01")
        .replace("{*call}", "acme/nothing/")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_in_who_it_is_for_and_nobody_else() {
    let (server, operator) = two_tenants().await;
    let of_acme = operator.meaning("acme");
    let role = |role: &str| json!({ "role": role });
    let admin = of_acme.makes(&server, role("admin")).await;
    let mut all =
        vec![of_acme.clone(), operator.makes(&server, role("viewer")).await.meaning("acme"), admin.clone()];
    for name in ["deployer", "caller", "viewer"] {
        all.push(admin.makes(&server, role(name)).await);
    }
    let revoked = admin.makes(&server, role("admin")).await;
    let gone = admin.asks(&server, "DELETE", &format!("/v1/keys/{}", revoked.id()), None).await;
    assert_eq!(gone.status, 204);
    let expired = admin.makes(&server, json!({ "role": "admin", "expires_in": "1ms" })).await;
    let suspended = operator.meaning("other").makes(&server, role("admin")).await;
    let body = json!({ "state": "suspended" });
    assert_eq!(operator.asks(&server, "PUT", "/v1/tenants/other", Some(body)).await.status, 200);

    let known = MATRIX.iter().map(|(method, path, _)| (*method, *path)).chain(OPEN.iter().copied());
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    let mut routes = server.routes.clone();
    routes.sort_unstable();
    assert_eq!(routes, known, "a route is missing from the table, or is not there any more");

    for (method, path) in OPEN {
        for who in [&Who::default(), &revoked, &suspended, &admin] {
            assert_eq!(who.asks(&server, method, path, None).await.status, 200, "{path}");
        }
    }
    for (method, path, expected) in MATRIX {
        let (method, path) = (method.replace("ANY", "GET"), concrete(path));
        let is_call = path.starts_with("/fn/");
        for (who, expected) in all.iter().zip(expected.chars()) {
            let answer = who.asks(&server, &method, &path, None).await;
            let came_in = ![401, 403].contains(&answer.status);
            assert_eq!(came_in, expected == 'y', "{method} {path} {expected}: {}", answer.text());
            assert!(came_in || answer.code() == "forbidden", "{}", answer.text());
            assert_ne!(answer.status, 500, "{method} {path}: {}", answer.text());
        }
        for (who, says) in [
            (&Who::default(), "this needs a key"),
            (&revoked, "the key has been revoked"),
            (&expired, "the key has expired"),
        ] {
            let answer = who.asks(&server, &method, &path, None).await;
            assert_eq!(
                (answer.status, answer.code()),
                (401, "unauthorized"),
                "{method} {path}: {}",
                answer.text()
            );
            assert!(answer.text().contains(says), "{method} {path}: {}", answer.text());
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
        let request = server.request(method.parse().unwrap(), &path).bearer_auth("secret");
        let answer = server.send(request).await;
        assert_eq!((answer.status, answer.code()), (401, "unauthorized"), "{method} {path}");
        assert!(answer.text().contains("is no key of Weir's"), "{method} {path}: {}", answer.text());
        let answer = suspended.asks(&server, &method, &path, None).await;
        assert_eq!((answer.status, answer.code()), (403, "tenant_suspended"), "{method} {path}");
        if !is_call && all[2].key.is_some() {
            // To name another tenant is to name one that is not there, whether it is or not.
            for tenant in ["other", "nobody"] {
                let answer = admin.meaning(tenant).asks(&server, &method, &path, None).await;
                assert!(
                    [403, 404].contains(&answer.status) || path == "/v1/tenants/nothing",
                    "{method} {path}: {}",
                    answer.text()
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_names_are_as_names_that_are_not_there() {
    let (server, operator) = two_tenants().await;
    let mine = operator.meaning("acme").makes(&server, json!({ "role": "admin" })).await;
    let theirs = operator.meaning("other").makes(&server, json!({ "role": "admin" })).await;
    theirs.deploys(&server, "hello", json!({})).await;
    assert_eq!(theirs.asks(&server, "GET", "/fn/other/hello/", None).await.status, 200);
    let ask = async |path: &str| {
        let answer = mine.asks(&server, "GET", path, None).await;
        // It says again what was asked for, and nothing else.
        let names = [("hello", "NAME"), ("nothing", "NAME"), ("`other`", "TENANT"), ("`nobody`", "TENANT")];
        (answer.status, names.iter().fold(answer.text(), |text, (name, so)| text.replace(name, so)))
    };
    for (there, nowhere) in [
        ("/fn/other/hello/", "/fn/other/nothing/"),
        ("/fn/other/hello/", "/fn/nobody/nothing/"),
        ("/v1/functions/hello", "/v1/functions/nothing"),
        ("/v1/tenants/other", "/v1/tenants/other"),
    ] {
        let (one, other) = (ask(there).await, ask(nowhere).await);
        assert_eq!(one.0, 404, "{there}: {}", one.1);
        assert_eq!(one, other, "{there}");
    }
    let id = theirs.id();
    for (method, path) in [("DELETE", format!("/v1/keys/{id}")), ("POST", format!("/v1/keys/{id}/rotate"))] {
        let answer = mine.asks(&server, method, &path, Some(json!({}))).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{}", answer.text());
    }
    let keys = mine.asks(&server, "GET", "/v1/keys", None).await;
    assert!(keys.text().contains(mine.id()) && !keys.text().contains(id), "{}", keys.text());
    assert_eq!(mine.asks(&server, "GET", "/v1/functions", None).await.json, json!({ "functions": [] }));
    // Without a key, what is there and what is not are alike too.
    let nobody = Who::default();
    let answers =
        ["/fn/other/hello/", "/fn/other/nothing/"].map(|path| nobody.asks(&server, "GET", path, None));
    let answers = futures::future::join_all(answers).await;
    assert_eq!((answers[0].status, answers[0].text()), (401, answers[1].text()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_may_be_open_to_all_and_sees_no_key_of_ours() {
    let (server, operator) = two_tenants().await;
    let admin = operator.meaning("acme").makes(&server, json!({ "role": "admin" })).await;
    admin.deploys(&server, "open", json!({ "public": true })).await;
    admin.deploys(&server, "half", json!({})).await;
    admin.deploys(&server, "half", json!({ "public": true })).await;
    let call = async |who: &Who, function: &str| {
        who.asks(&server, "GET", &format!("/fn/acme/{function}/"), None).await.status
    };
    let nobody = Who::default();
    assert_eq!([call(&nobody, "open").await, call(&nobody, "half").await], [200, 200]);
    let split = json!({ "traffic": [{ "revision": 1, "weight": 1 }, { "revision": 2, "weight": 1 }] });
    let answer = admin.asks(&server, "PUT", "/v1/functions/half/traffic", Some(split)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(call(&nobody, "half").await, 401, "one of its revisions is not open");
    // Another tenant's people may what all may.
    let other = operator.meaning("other").makes(&server, json!({ "role": "caller" })).await;
    assert_eq!([call(&other, "open").await, call(&other, "half").await], [200, 404]);
    let some = admin.makes(&server, json!({ "role": "caller", "functions": ["half"] })).await;
    admin.deploys(&server, "closed", json!({})).await;
    assert_eq!([call(&some, "half").await, call(&some, "closed").await], [200, 403]);
    let suspend = json!({ "state": "suspended" });
    operator.asks(&server, "PUT", "/v1/tenants/acme", Some(suspend)).await;
    assert_eq!([call(&nobody, "open").await, call(&admin, "open").await], [401, 403]);
    operator.asks(&server, "PUT", "/v1/tenants/acme", Some(json!({}))).await;
    assert_eq!([call(&nobody, "open").await, call(&admin, "open").await], [200, 200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_guesses_keys_is_held_up_and_whoever_has_one_is_not() {
    let (server, operator) = two_tenants().await;
    let guess = Who::with(&format!("weir_{}_{}", operator.id(), "0".repeat(64)));
    let mut codes = Vec::new();
    for _ in 0..30 {
        let answer = guess.asks(&server, "GET", "/v1/keys", None).await;
        codes.push((answer.status, answer.headers.contains_key("retry-after")));
    }
    assert!(codes.contains(&(401, false)) && codes.contains(&(429, true)), "{codes:?}");
    assert_eq!(operator.asks(&server, "GET", "/v1/keys", None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_call_so_often() {
    let (server, operator) = two_tenants().await;
    let mut callers = Vec::new();
    for tenant in ["acme", "other"] {
        let admin = operator.meaning(tenant).makes(&server, json!({ "role": "admin" })).await;
        admin.deploys(&server, "hello", json!({})).await;
        callers.push((admin, format!("/fn/{tenant}/hello/")));
    }
    let set = async |body: Value| {
        let set = operator.asks(&server, "PUT", "/v1/tenants/acme", Some(body)).await;
        assert_eq!(set.status, 200, "{}", set.text());
    };
    set(json!({ "calls_per_second": 1, "call_burst": 3 })).await;
    let call = async |caller: usize| callers[caller].0.asks(&server, "GET", &callers[caller].1, None).await;
    let (mut refused, began) = (0, std::time::Instant::now());
    for _ in 0..20 {
        let answer = call(0).await;
        if answer.status == 200 {
            continue;
        }
        refused += 1;
        assert_eq!((answer.status, answer.code()), (429, "rate_limited"), "{}", answer.text());
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.headers["ratelimit-policy"], "\"tenant\";q=1;w=1");
        assert_eq!(answer.headers["ratelimit"], "\"tenant\";r=0;t=1");
        assert_eq!(call(1).await.status, 200, "it is nobody else's rate");
    }
    let allowed = 3 + 1 + began.elapsed().as_secs();
    assert!(20 - refused >= 3 && 20 - refused <= allowed, "{refused} refused, {allowed} allowed");
    let metrics = operator.asks(&server, "GET", "/metrics", None).await.text();
    let met = weir_tests::metric(&metrics, "weir_limits_total{limit=\"tenant.calls_per_second\"}");
    assert_eq!(met, refused as f64, "{metrics}");
    set(json!({})).await;
    for _ in 0..20 {
        assert_eq!(call(0).await.status, 200, "it has no rate any more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_nothing_to_a_second_tenants_call_by_the_command_line() {
    let data = tempfile::tempdir().unwrap();
    let process = Process::serve_with_keys(data.path()).await;
    let operator = std::fs::read_to_string(data.path().join("operator.key")).unwrap();
    let says = async |token: &str, words: &[&str]| {
        let mut command = process.command_line(words);
        command.env("WEIR_CA", data.path().join("cert.pem"));
        let output = command.env("WEIR_TOKEN", token.trim()).output().await.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert!(process.url.starts_with("https://"), "{}", process.url);
    let open = process.url.replace("https://", "http://");
    assert_eq!(Process::run(&["functions"], &open, data.path()).await.status.code(), Some(3));
    let untrusted = Process::run(&["functions"], &process.url, data.path()).await;
    assert_eq!(untrusted.status.code(), Some(3), "its certificate is nobody's that is known");
    let (code, _, error) = says("", &["functions"]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("needs a key"), "{error}");
    let (code, _, error) = says(&operator, &["tenants", "set", "acme", "--display-name", "Acme"]).await;
    assert_eq!(code, Some(0), "{error}");
    let (code, admin, error) = says(&operator, &["keys", "create", "admin", "--tenant", "acme"]).await;
    assert_eq!(code, Some(0), "{error}");
    let (_, caller, _) = says(&admin, &["keys", "create", "caller", "--functions", "hello"]).await;
    let (code, deployed, error) = says(&admin, &["deploy", "hello", guests::HELLO]).await;
    assert_eq!(code, Some(0), "{error}");
    let (code, answer, error) = says(&caller, &["call", "hello"]).await;
    assert_eq!(code, Some(1), "whose `hello` is not said: {error}");
    assert!(answer.contains("the tenant `default` has no function `hello`"), "{answer}");
    assert!(error.contains("went to the tenant `default`: name another with --tenant"), "{error}");
    // The line that the deploy prints, as it stands there.
    let line = deployed.lines().find_map(|line| line.strip_prefix("call it: weir ")).unwrap();
    assert_eq!(line, "call hello --tenant acme");
    let (code, answer, error) = says(&caller, &line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(code, Some(0), "{error}");
    let (code, forbidden, _) = says(&caller, &["call", "other", "--tenant", "acme"]).await;
    assert_eq!(code, Some(1));
    assert!(forbidden.contains("for calls of the functions that it names, and no others"), "{forbidden}");
    assert!(answer.to_lowercase().contains("hello"), "{answer}");
    let (_, keys, _) = says(&admin, &["keys"]).await;
    assert!(keys.contains("caller") && keys.contains("admin") && !keys.contains(caller.trim()), "{keys}");

    let (code, quotas, error) = says(&admin, &["tenants", "show", "acme"]).await;
    assert_eq!(code, Some(0), "a tenant sees its own: {error}");
    assert!(quotas.contains("max_functions") && quotas.contains("Acme"), "{quotas}");
    let (code, _, error) = says(&admin, &["tenants"]).await;
    assert_eq!(code, Some(1), "{error}");
    for (words, says_what) in [
        (&["functions"][..], "with --tenant, or WEIR_TENANT (tenant_required)"),
        (&["keys", "create", "admin"], "name it with --tenant, or WEIR_TENANT (invalid_config)"),
    ] {
        let (code, _, error) = says(&operator, words).await;
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(says_what), "{error}");
    }
    let (code, problem, error) = says(&operator, &["functions", "--json"]).await;
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert_eq!((code, &problem["code"]), (Some(1), &json!("tenant_required")), "{error}");

    let (_, ended, _) = says(&admin, &["keys", "create", "viewer", "--expires-in", "1ms"]).await;
    let (_, keys, _) = says(&admin, &["keys"]).await;
    let shown: Vec<&str> = keys.lines().filter(|line| line.contains("expired")).collect();
    assert_eq!(shown.len(), 1, "{keys}");
    let prefix = shown[0].split_whitespace().next().unwrap();
    assert!(ended.starts_with(prefix.trim_end_matches('…')), "{prefix}");
    for name in [prefix, caller.trim()] {
        let (code, _, error) = says(&admin, &["keys", "revoke", name]).await;
        assert_eq!(code, Some(0), "{error}");
    }
    let (code, answer, _) = says(&caller, &["call", "hello", "--tenant", "acme"]).await;
    assert!(code == Some(1) && answer.contains("the key has been revoked"), "{answer}");
    // More wrong keys than one address may send.
    let (mut error, wrong) = (String::new(), admin.trim().to_owned() + "x");
    for _ in 0..100 {
        error = says(&wrong, &["functions"]).await.2;
        if error.contains("too_many_failures") {
            break;
        }
    }
    assert!(error.contains("(too_many_failures); try again in "), "{error}");
    tokio::time::timeout(Duration::from_secs(60), process.kill()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_log_is_let_go_with_its_key_or_its_tenant() {
    let (server, operator) = two_tenants().await;
    let acme = operator.meaning("acme");
    let admin = acme.makes(&server, json!({ "role": "admin" })).await;
    admin.deploys_guest(&server, "echo", guests::ECHO, json!({ "public": true })).await;
    let says = async |text: &str| {
        let called = server.send(server.request(Method::GET, &format!("/fn/acme/echo/{text}"))).await;
        assert_eq!(called.status, 200, "{}", called.text());
    };
    let follows = async |who: &Who| {
        let request = server.request(Method::GET, "/v1/functions/echo/logs?follow=true&tail=0");
        let follow = request.bearer_auth(who.key.as_ref().unwrap()).send().await.unwrap();
        assert_eq!(follow.status(), 200);
        follow
    };
    let rest = async |follow: reqwest::Response| {
        let all = tokio::time::timeout(Duration::from_secs(60), follow.text()).await;
        all.expect("it is let go").unwrap()
    };
    let viewer = json!({ "role": "viewer" });

    let revoked = acme.makes(&server, viewer.clone()).await;
    let mut follow = follows(&revoked).await;
    says("before").await;
    let mut heard = String::new();
    while !heard.contains("before") {
        heard += &String::from_utf8_lossy(&follow.chunk().await.unwrap().expect("the stream stays open"));
    }
    let path = format!("/v1/keys/{}", revoked.id());
    assert_eq!(acme.asks(&server, "DELETE", &path, None).await.status, 204);
    says("after").await;
    heard = rest(follow).await;
    assert!(!heard.contains("after"), "{heard}");

    let silent = follows(&acme.makes(&server, json!({ "role": "viewer", "expires_in": "5s" })).await).await;
    rest(silent).await;

    let suspended = follows(&acme.makes(&server, viewer).await).await;
    let suspend = json!({ "state": "suspended" });
    assert_eq!(operator.asks(&server, "PUT", "/v1/tenants/acme", Some(suspend)).await.status, 200);
    rest(suspended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_no_web_page_of_elsewhere_is_the_operator() {
    let server = Server::start().await;
    server.deploy("hello", guests::HELLO, json!({})).await;
    let ask = async |method: Method, path: &str, header: &str, value: &str| {
        server.send(server.request(method, path).header(header, value)).await
    };
    for (header, value) in [
        ("host", "evil.example"),
        ("host", "rebound.evil.example:80"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        for (method, path) in
            [(Method::GET, "/v1/functions"), (Method::POST, "/v1/backup"), (Method::GET, "/metrics")]
        {
            let refused = ask(method, path, header, value).await;
            assert_eq!((refused.status, refused.code()), (403, "forbidden"), "{path} {header} {value}");
        }
        // A deploy as a page's form sends it.
        let form = reqwest::multipart::Form::new()
            .text("config", "{}")
            .part("component", reqwest::multipart::Part::bytes(std::fs::read(guests::HELLO).unwrap()));
        let deploy = server.request(Method::POST, "/v1/functions/evil/revisions").header(header, value);
        assert_eq!(server.send(deploy.multipart(form)).await.status, 403, "{header} {value}");
        // Functions are for anybody.
        let called = ask(Method::GET, "/fn/default/hello/", header, value).await;
        assert_eq!(called.status, 200, "{}", called.text());
    }
    for (header, value) in
        [("host", "localhost:1"), ("host", "[::1]:7070"), ("origin", "http://localhost:3000")]
    {
        let listed = ask(Method::GET, "/v1/functions", header, value).await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        assert_eq!(listed.json["functions"].as_array().unwrap().len(), 1, "{}", listed.text());
    }
}
