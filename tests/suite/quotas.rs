//! What a tenant may have and spend, and that its neighbours do not notice.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use tract_onnx::pb::tensor_proto::DataType;
use weir::config::Settings;
use weir_tests::{Answer, Server, guests, onnx, until};

/// A server with tenants `acme` and `other`, and its operator's key.
pub struct Two {
    pub server: Server,
    pub key: String,
}

impl Two {
    pub async fn start(change: impl FnOnce(&mut Settings)) -> Arc<Self> {
        let (server, key) = Server::with_keys_and(change).await;
        let two = Self { server, key };
        two.set("acme", json!({})).await;
        two.set("other", json!({})).await;
        Arc::new(two)
    }

    /// Stops it, when nobody else has it any more.
    pub async fn stop(self: Arc<Self>) -> Arc<tempfile::TempDir> {
        let Ok(two) = Arc::try_unwrap(self) else { panic!("somebody still has it") };
        two.server.stop().await
    }

    pub fn request(&self, tenant: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.server.request(method, path).bearer_auth(&self.key).header("weir-tenant", tenant)
    }

    /// Sets what a tenant may have, in place of what was set before.
    pub async fn set(&self, tenant: &str, share: Value) {
        let set = self.try_set(tenant, share).await;
        assert!([200, 201].contains(&set.status), "{}", set.text());
    }

    async fn try_set(&self, tenant: &str, share: Value) -> Answer {
        let path = format!("/v1/tenants/{tenant}");
        self.server.send(self.request(tenant, Method::PUT, &path).json(&share)).await
    }

    async fn used(&self, tenant: &str) -> Value {
        let path = format!("/v1/tenants/{tenant}");
        self.server.send(self.request(tenant, Method::GET, &path)).await.json["used"].clone()
    }

    async fn deploy(&self, tenant: &str, name: &str, component: &str, config: Value) -> Answer {
        let bytes = std::fs::read(Path::new(component)).unwrap();
        let form = Form::new().text("config", config.to_string()).part("component", Part::bytes(bytes));
        let path = format!("/v1/functions/{name}/revisions");
        self.server.send(self.request(tenant, Method::POST, &path).multipart(form)).await
    }

    pub async fn deploys(&self, tenant: &str, name: &str, component: &str, config: Value) {
        let deployed = self.deploy(tenant, name, component, config).await;
        assert_eq!(deployed.status, 201, "{}", deployed.text());
    }

    pub async fn put_model(&self, tenant: &str, name: &str, bytes: Vec<u8>) -> Answer {
        let path = format!("/v1/models/{name}?format=onnx");
        self.server.send(self.request(tenant, Method::PUT, &path).body(bytes)).await
    }

    async fn call(&self, tenant: &str, function: &str, path: &str) -> Answer {
        self.server.send(self.request(tenant, Method::GET, &format!("/fn/{tenant}/{function}{path}"))).await
    }

    /// Calls that go on until they are aborted.
    fn flood(self: &Arc<Self>, tenant: &'static str, path: &'static str, calls: usize) -> Vec<Flood> {
        let call = |_| {
            let two = Arc::clone(self);
            Flood(tokio::spawn(async move { two.call(tenant, "trouble", path).await }))
        };
        (0..calls).map(call).collect()
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = self.server.send(self.request("acme", Method::GET, "/metrics")).await.text();
        weir_tests::metric(&text, name)
    }

    async fn limit(&self, field: &str) -> f64 {
        self.metric(&format!("weir_limits_total{{limit=\"{field}\"}}")).await
    }
}

/// A call under way; its client goes away when this is dropped.
struct Flood(tokio::task::JoinHandle<Answer>);

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn double(rows: i64) -> Vec<u8> {
    onnx::double(DataType::Float, &[onnx::Axis::Fixed(rows)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_keep_so_much() {
    let two = Two::start(|_| {}).await;
    let refused = |answer: &Answer, says: &str| {
        assert_eq!((answer.status, answer.code()), (403, "quota_exceeded"), "{}", answer.text());
        assert!(answer.text().contains(says), "{} should say {says}", answer.text());
    };
    two.set("acme", json!({ "max_functions": 1, "max_models": 1 })).await;
    two.deploys("acme", "one", guests::HELLO, json!({})).await;
    two.deploys("acme", "one", guests::ECHO, json!({})).await;
    let over = two.deploy("acme", "two", guests::HELLO, json!({})).await;
    refused(&over, "tenant.max_functions: this is 1 more; 1 of 1 are used");
    assert_eq!(two.put_model("acme", "m", double(2)).await.status, 201);
    assert_eq!(two.put_model("acme", "m", double(3)).await.status, 201, "in place of the one before");
    refused(&two.put_model("acme", "n", double(2)).await, "tenant.max_models");
    two.deploys("other", "two", guests::HELLO, json!({})).await;

    // Two components and a model; the same component again is no more.
    let file = |path: &str| std::fs::metadata(path).unwrap().len();
    let model = u64::try_from(double(3).len()).unwrap();
    let stored = file(guests::HELLO) + file(guests::ECHO) + model;
    let all = json!({ "functions": 1, "models": 1, "keys": 0, "stored_bytes": stored, "running_calls": 0, "queued_calls": 0, "budget": null, "spend": null });
    assert_eq!(two.used("acme").await, all);
    two.set("acme", json!({ "stored_bytes": stored })).await;
    two.deploys("acme", "two", guests::HELLO, json!({})).await;
    let over = two.deploy("acme", "three", guests::TROUBLE, json!({})).await;
    refused(&over, "tenant.stored_bytes");
    refused(&two.put_model("acme", "n", double(4)).await, "tenant.stored_bytes");
    assert_eq!(two.used("acme").await["stored_bytes"], stored, "nothing has changed");
    assert_eq!(two.call("acme", "three", "/").await.code(), "not_found");
    // Below what there is, all of it stays and works.
    two.set("acme", json!({ "stored_bytes": 1, "max_functions": 0 })).await;
    assert_eq!(two.call("acme", "two", "/").await.status, 200);
    refused(&two.deploy("acme", "four", guests::HELLO, json!({})).await, "2 of 0 are used");
    for field in ["max_functions", "max_models", "stored_bytes"] {
        assert!(two.limit(&format!("tenant.{field}")).await > 0.0, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_have_so_many_keys() {
    let two = Two::start(|_| {}).await;
    two.set("acme", json!({ "max_keys": 2 })).await;
    let make = async |tenant: &str| {
        let made = two.request(tenant, Method::POST, "/v1/keys").json(&json!({ "role": "viewer" }));
        two.server.send(made).await
    };
    let made = [make("acme").await, make("acme").await].map(|made| {
        assert_eq!(made.status, 201, "{}", made.text());
        made.json["id"].as_str().unwrap().to_owned()
    });
    let over = make("acme").await;
    assert_eq!((over.status, over.code()), (403, "quota_exceeded"), "{}", over.text());
    assert!(over.text().contains("tenant.max_keys: this is 1 more; 2 of 2 are used"), "{}", over.text());
    assert_eq!(two.limit("tenant.max_keys").await, 1.0);
    let rotate = format!("/v1/keys/{}/rotate", made[0]);
    let rotated = two.server.send(two.request("acme", Method::POST, &rotate).json(&json!({}))).await;
    assert_eq!(rotated.code(), "quota_exceeded", "it would be one more: {}", rotated.text());
    assert_eq!(make("other").await.status, 201);

    // One that has ended makes way, and only for one.
    let revoke = format!("/v1/keys/{}", made[1]);
    assert_eq!(two.server.send(two.request("acme", Method::DELETE, &revoke)).await.status, 204);
    assert_eq!(two.used("acme").await["keys"], 2, "it is listed still");
    assert_eq!(make("acme").await.status, 201);
    assert_eq!(make("acme").await.code(), "quota_exceeded");
    let listed = two.server.send(two.request("acme", Method::GET, "/v1/keys")).await;
    assert!(listed.text().contains(&made[0]) && !listed.text().contains(&made[1]), "{}", listed.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_learn_nothing_of_a_tenants_rates_and_budget() {
    let two = Two::start(|_| {}).await;
    let config = json!({ "public": true, "calls_per_second": 50 });
    two.deploys("acme", "open", guests::HELLO, config).await;
    let stranger = async || two.server.get("/fn/acme/open/").await;
    two.set("acme", json!({ "calls_per_second": 1, "call_burst": 100 })).await;
    let policies = |answer: &Answer| {
        answer
            .headers
            .get_all("ratelimit-policy")
            .iter()
            .map(|name| name.to_str().unwrap().to_owned())
            .collect()
    };
    let (theirs, own): (Vec<String>, Vec<String>) =
        (policies(&stranger().await), policies(&two.call("acme", "open", "/").await));
    assert_eq!((theirs, own.len()), (vec!["\"function\";q=50;w=1".to_owned()], 2));
    two.set("acme", json!({ "calls_per_second": 1, "call_burst": 1 })).await;
    let mut over = stranger().await;
    while over.status == 200 {
        over = stranger().await;
    }
    assert_eq!((over.code(), &over.headers["retry-after"]), ("rate_limited", &"1".parse().unwrap()));
    assert!(
        !over.headers.contains_key("ratelimit") && !over.text().contains("times a second"),
        "{}",
        over.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_asks_for_no_class_above_its_tenants() {
    let two = Two::start(|_| {}).await;
    two.set("acme", json!({ "class": "standard" })).await;
    let over = two.deploy("acme", "hello", guests::HELLO, json!({ "class": "critical" })).await;
    assert_eq!((over.status, over.code()), (422, "invalid_config"), "{}", over.text());
    assert!(over.text().contains("class is critical; the most urgent of this tenant is standard"));
    two.set("acme", json!({ "class": "batch" })).await;
    two.deploys("acme", "hello", guests::HELLO, json!({})).await;
    two.deploys("other", "hello", guests::HELLO, json!({ "class": "critical" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_calls_of_a_tenant_run_and_wait() {
    let two = Two::start(|_| {}).await;
    for tenant in ["acme", "other"] {
        two.deploys(tenant, "trouble", guests::TROUBLE, json!({})).await;
        two.deploys(tenant, "hello", guests::HELLO, json!({})).await;
    }
    let are = async |running: u32, queued: u32| {
        until("so many run and wait", async || {
            let used = two.used("acme").await;
            [&used["running_calls"], &used["queued_calls"]] == [running, queued]
        })
        .await;
    };
    two.set("acme", json!({ "max_concurrent_calls": 2, "max_queued_calls": 1 })).await;
    let mut running = two.flood("acme", "/sleep", 2);
    are(2, 0).await;
    let waiting = two.flood("acme", "/sleep", 1);
    are(2, 1).await;
    // One function's calls are another's of the tenant, and no other tenant's.
    let over = two.call("acme", "hello", "/").await;
    assert_eq!((over.status, over.code()), (429, "tenant_overloaded"), "{}", over.text());
    assert!(over.text().contains("2 calls running and 1 waiting"), "{}", over.text());
    assert_eq!(two.call("other", "hello", "/").await.status, 200);
    assert_eq!(two.limit("tenant.max_queued_calls").await, 1.0);
    // More, at once: who waits goes on, and others come in.
    two.set("acme", json!({ "max_concurrent_calls": 4, "max_queued_calls": 1 })).await;
    are(3, 0).await;
    assert_eq!(two.call("acme", "hello", "/").await.status, 200);
    // Fewer: those that run go on, and nobody comes in until there are fewer.
    two.set("acme", json!({ "max_concurrent_calls": 1, "max_queued_calls": 0 })).await;
    assert_eq!(two.used("acme").await["running_calls"], 3);
    assert_eq!(two.call("acme", "hello", "/").await.code(), "tenant_overloaded");
    assert_eq!(two.limit("tenant.max_concurrent_calls").await, 1.0);
    drop(waiting);
    running.pop();
    are(1, 0).await;
    assert_eq!(two.call("acme", "hello", "/").await.code(), "tenant_overloaded");
    drop(running);
    are(0, 0).await;
    assert_eq!(two.call("acme", "hello", "/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_of_sandboxes_is_there_while_another_tenant_takes_all_that_it_can_get() {
    let two = Two::start(|settings| settings.sandbox.sandboxes = 4.try_into().unwrap()).await;
    for tenant in ["acme", "other"] {
        let config = json!({ "startup_timeout": "500ms", "reuse": 1000 });
        two.deploys(tenant, "trouble", guests::TROUBLE, config.clone()).await;
        two.deploys(tenant, "hello", guests::HELLO, config).await;
    }
    let refused = two.try_set("acme", json!({ "reserved_sandboxes": 5 })).await;
    assert_eq!((refused.status, refused.code()), (422, "invalid_config"), "{}", refused.text());
    assert!(refused.text().contains("reserved_sandboxes is 5, and 0 are reserved for other tenants"));
    two.set("acme", json!({ "reserved_sandboxes": 1 })).await;
    assert_eq!(two.try_set("other", json!({ "reserved_sandboxes": 4 })).await.status, 422);
    let flood = two.flood("other", "/sleep", 20);
    let all_but = async |free: f64| {
        until("all others are taken", async || two.metric("weir_sandboxes").await == 4.0 - free).await;
    };
    all_but(1.0).await;
    for _ in 0..5 {
        assert_eq!(two.call("acme", "hello", "/").await.status, 200);
        let other = two.call("other", "hello", "/").await;
        assert_eq!((other.status, other.code()), (503, "server_overloaded"), "{}", other.text());
    }
    // Given up while the flood goes on, it is the flood's.
    two.set("acme", json!({})).await;
    let more = two.flood("other", "/sleep", 20);
    until("acme has none", async || two.call("acme", "hello", "/").await.code() == "server_overloaded").await;
    drop((flood, more));
    until("all have ended", async || two.call("acme", "hello", "/").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_may_be_called_so_often() {
    let two = Two::start(|_| {}).await;
    two.deploys("acme", "slow", guests::HELLO, json!({ "calls_per_second": 1, "call_burst": 2 })).await;
    two.deploys("acme", "hello", guests::HELLO, json!({})).await;
    let call = async |function: &str| two.call("acme", function, "/").await;
    let first = call("slow").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["ratelimit-policy"], "\"function\";q=1;w=1");
    assert_eq!(first.headers["ratelimit"], "\"function\";r=1;t=1");
    assert!(!call("hello").await.headers.contains_key("ratelimit"), "what has no rate says nothing of one");
    // Of a hundred calls the burst comes through, and one for each second that they take.
    let began = Instant::now();
    let mut refused = 0;
    for _ in 0..100 {
        let answer = call("slow").await;
        if answer.status == 429 {
            refused += 1;
            assert_eq!(answer.code(), "rate_limited", "{}", answer.text());
            assert_eq!(answer.headers["retry-after"], "1");
            assert_eq!(answer.headers["ratelimit"], "\"function\";r=0;t=1");
            assert!(answer.text().contains("the function may be called 1 times a second"));
        }
    }
    assert!(refused >= 100 - 2 - 1 - began.elapsed().as_secs(), "{refused} refused");
    assert_eq!(two.limit("calls_per_second").await, refused as f64);
    assert_eq!(call("hello").await.status, 200, "it is no other function's rate");
    // Both rates are told, and the tenant's, too, is looked at.
    two.set("acme", json!({ "calls_per_second": 1, "call_burst": 3 })).await;
    two.deploys("acme", "slow", guests::HELLO, json!({ "calls_per_second": 1, "call_burst": 9 })).await;
    let both = call("slow").await;
    let policies: Vec<_> = both.headers.get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, ["\"function\";q=1;w=1", "\"tenant\";q=1;w=1"], "{}", both.text());
    let mut over = call("slow").await;
    while over.status == 200 {
        over = call("slow").await;
    }
    assert_eq!(over.headers["ratelimit-policy"], "\"tenant\";q=1;w=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ten_times_its_rate_a_tenant_gets_its_rate_and_its_neighbour_all() {
    const RATE: u32 = 50;
    let two = Two::start(|_| {}).await;
    for tenant in ["acme", "other"] {
        two.deploys(tenant, "hello", guests::HELLO, json!({})).await;
        assert_eq!(two.call(tenant, "hello", "/").await.status, 200);
    }
    two.set("acme", json!({ "calls_per_second": RATE, "call_burst": RATE })).await;
    let began = Instant::now();
    let lasts = Duration::from_secs(6);
    // Ten streams of at most the rate each: together far above it, without a gap as long as the burst lasts.
    let streams: Vec<_> = (0..10)
        .map(|_| {
            let two = Arc::clone(&two);
            tokio::spawn(async move {
                let mut counts = [0_u32; 2];
                let mut turn = tokio::time::interval(Duration::from_secs(1) / RATE);
                while began.elapsed() < lasts {
                    turn.tick().await;
                    let answer = two.call("acme", "hello", "/").await;
                    match answer.status {
                        200 => counts[0] += 1,
                        429 => counts[1] += 1,
                        _ => panic!("{}", answer.text()),
                    }
                }
                counts
            })
        })
        .collect();
    let mut neighbours = 0;
    while began.elapsed() < lasts {
        let answer = two.call("other", "hello", "/").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        neighbours += 1;
    }
    let mut counts = [0_u32; 2];
    for stream in streams {
        let of_stream = stream.await.unwrap();
        counts = [counts[0] + of_stream[0], counts[1] + of_stream[1]];
    }
    // The burst, and the rate from then on; what a stall keeps back the burst makes good.
    let due = f64::from(RATE) * (1.0 + began.elapsed().as_secs_f64());
    let through = f64::from(counts[0]) / due;
    println!("{through:.3} of the rate came through: {counts:?}; the neighbour's calls: {neighbours}");
    assert!((0.98..=1.02).contains(&through), "{through}: {counts:?} of {due}");
    assert!(counts[1] > 0 && neighbours > 0, "{counts:?}, {neighbours}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_spend_so_much_in_a_month() {
    let two = Two::start(|_| {}).await;
    let model = onnx::slow(256, 40);
    for tenant in ["acme", "other"] {
        assert_eq!(two.put_model(tenant, "slow", model.clone()).await.status, 201);
        two.deploys(tenant, "nn", guests::NN, json!({ "models": ["slow"] })).await;
    }
    let run = async |tenant: &str| {
        let path = format!("/fn/{tenant}/nn/raw?model=slow&input=x0&type=fp32&shape=256,256");
        two.server.send(two.request(tenant, Method::POST, &path).body(vec![0; 256 * 256 * 4])).await
    };
    let spend = async |tenant: &'static str| {
        until("it has spent something", async || {
            let answer = run(tenant).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            two.used(tenant).await["budget"].as_u64().unwrap() > 0
        })
        .await;
    };
    for tenant in ["acme", "other"] {
        two.set(tenant, json!({ "budget_soft": 1_000_000_000 })).await;
    }
    spend("acme").await;
    let answer = run("acme").await;
    assert!(!answer.headers.contains_key("weir-budget"), "it is within its budget");
    two.set("acme", json!({ "budget_soft": 1, "budget_hard": 1_000_000_000 })).await;
    let answer = run("acme").await;
    assert_eq!((answer.status, &answer.headers["weir-budget"]), (200, &"soft".parse().unwrap()));
    let refused = two.try_set("acme", json!({ "budget_soft": 2, "budget_hard": 1 })).await;
    assert_eq!(refused.code(), "invalid_config", "{}", refused.text());
    two.set("acme", json!({ "budget_hard": 1 })).await;
    let over = run("acme").await;
    assert_eq!((over.status, over.code()), (402, "budget_exhausted"), "{}", over.text());
    assert!(over.text().contains("of 1 milliseconds"), "{}", over.text());
    assert_eq!(two.limit("tenant.budget_hard").await, 1.0);
    spend("other").await;
    two.set("acme", json!({})).await;
    assert_eq!(run("acme").await.status, 200, "a change holds at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_may_spend_so_much_money_in_a_month() {
    let two = Two::start(|_| {}).await;
    // A call costs 1.
    let rates = json!({
        "currency": "EUR",
        "effective_from": "2026-01-01T00:00:00Z",
        "prices": { "calls": { "million_calls": "1000000" } },
    });
    let set = two.request("acme", Method::PUT, "/v1/rate-cards/default?restate=true").json(&rates);
    assert_eq!(two.server.send(set).await.status, 201);
    for tenant in ["acme", "other"] {
        two.deploys(tenant, "hello", guests::HELLO, json!({})).await;
        two.set(tenant, json!({ "spend_soft": "2", "spend_hard": "1000" })).await;
    }
    let spends = async |tenant: &'static str, most: &str| {
        let answer = two.call(tenant, "hello", "/").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        until("it is known what the call cost", async || two.used(tenant).await["spend"] == most).await;
        answer
    };
    let answer = spends("acme", "1").await;
    assert!(!answer.headers.contains_key("weir-budget"), "it is within its budget");
    spends("acme", "2").await;
    let answer = spends("acme", "3").await;
    assert_eq!(answer.headers["weir-budget"], "soft");
    let refused = two.try_set("acme", json!({ "spend_soft": "2.01", "spend_hard": "2" })).await;
    assert_eq!(refused.code(), "invalid_config", "{}", refused.text());
    two.set("acme", json!({ "spend_hard": "4" })).await;
    spends("acme", "4").await;
    for _ in 0..3 {
        let over = two.call("acme", "hello", "/").await;
        assert_eq!((over.status, over.code()), (402, "budget_exhausted"), "{}", over.text());
        assert!(over.text().contains("has spent 4 of 4 EUR"), "{}", over.text());
    }
    assert_eq!(two.limit("tenant.spend_hard").await, 3.0);
    assert_eq!(two.metric("weir_budgets_over{bound=\"hard\"}").await, 1.0);
    spends("other", "1").await;
    assert_eq!(two.used("acme").await["spend"], "4", "who is refused pays nothing");
    two.set("acme", json!({ "spend_hard": "4.000000000000000001" })).await;
    assert_eq!(two.call("acme", "hello", "/").await.status, 200, "a change holds at once");
}
