//! Usage records: one for every call, of what it used, and all of them together of what the devices measured.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_tests::{Answer, Process, guests, onnx, usage};

use crate::quotas::Two;

const WIDTH: i64 = 64;

impl Two {
    async fn model(&self, tenant: &str, name: &str, bytes: Vec<u8>, config: Value) {
        assert_eq!(self.put_model(tenant, name, bytes).await.status, 201);
        let config = self.request(tenant, Method::PUT, &format!("/v1/models/{name}/config")).json(&config);
        let answer = self.server.send(config).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    pub async fn post(&self, tenant: &str, function: &str, path: &str, body: Vec<u8>) -> Answer {
        let path = format!("/fn/{tenant}/{function}{path}");
        self.server.send(self.request(tenant, Method::POST, &path).body(body)).await
    }

    /// Runs a model on rows of zeros.
    async fn infer(&self, tenant: &str, model: &str, rows: usize) -> Answer {
        let path = format!("/raw?model={model}&input=x0&type=fp32&shape={rows},{WIDTH}");
        self.post(tenant, "nn", &path, vec![0; rows * WIDTH as usize * 4]).await
    }
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or(0)
}

fn calls(records: &[Value]) -> Vec<&Value> {
    records.iter().filter(|record| record["kind"] == "call").collect()
}

/// The record of the call that was answered so.
fn of<'a>(records: &'a [Value], answer: &Answer) -> &'a Value {
    let id = answer.headers["weir-call"].to_str().unwrap();
    let found: Vec<&Value> = records.iter().filter(|record| record["id"] == id).collect();
    assert_eq!(found.len(), 1, "{id} has one record");
    found[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_what_a_call_used_and_adds_up() {
    let two = Two::start(|_| {}).await;
    two.set("acme", json!({})).await;
    two.model("acme", "m", onnx::perceptron(WIDTH, 1, 1), json!({})).await;
    two.deploys("acme", "nn", guests::NN, json!({ "models": ["m"], "class": "batch" })).await;
    let cold = two.infer("acme", "m", 2).await;
    let warm = two.infer("acme", "m", 3).await;
    assert_eq!((cold.status, warm.status), (200, 200), "{}", cold.text());
    let data = two.stop().await;
    let records = usage::records(data.path());
    assert_eq!(calls(&records).len(), 2);
    for (answer, rows, is_cold) in [(&cold, 2, true), (&warm, 3, false)] {
        let record = of(&records, answer);
        println!("{record}");
        assert_eq!(record["tenant"], "acme");
        assert_eq!((&record["function"], number(record, "revision")), (&json!("nn"), 1));
        assert_eq!((&record["class"], &record["outcome"]), (&json!("batch"), &json!("answered")));
        assert!(record["key"].is_string(), "the operator's key");
        assert_eq!((number(record, "status"), number(record, "calls")), (200, 1));
        assert_eq!(number(record, "request_bytes"), rows * WIDTH as u64 * 4);
        assert_eq!(number(record, "response_bytes"), answer.body.len() as u64);
        let parts = ["held_ns", "startup_ns", "queue_ns", "inference_ns", "guest_ns"];
        let parts: u64 = parts.iter().map(|part| number(record, part)).sum();
        assert_eq!(parts, number(record, "wall_ns"));
        for used in ["guest_cpu_ns", "host_memory_byte_ms", "inference_ns", "startup_ns"] {
            assert!(number(record, used) > 0, "{used}");
        }
        assert_eq!(number(record, "cold_starts"), u64::from(is_cold));
        assert_eq!(number(record, "cold_code_ns") > 0, is_cold);
        assert_eq!(number(record, "cold_sandbox_ns") > 0, is_cold);
        let uses = record["uses"].as_array().unwrap();
        assert_eq!(uses.len(), 1);
        let used = &uses[0];
        assert_eq!((&used["device"], &used["model"]), (&json!("cpu0"), &json!("m")));
        assert_eq!(
            (number(used, "inferences"), number(used, "rows"), number(used, "batch_rows")),
            (1, rows, rows)
        );
        assert!(
            number(used, "device_ns") > 0 && number(used, "operators") > 0 && number(used, "peak_bytes") > 0
        );
    }
    // The first one loaded the graph; the second found it, and made it ready for another number of rows.
    let loads = [&cold, &warm].map(|answer| number(&of(&records, answer)["uses"][0], "loads"));
    assert_eq!(loads, [1, 0]);
    let residency: Vec<&Value> = records.iter().filter(|record| record["kind"] == "residency").collect();
    let stayed: u64 = residency.iter().map(|record| number(&record["uses"][0], "memory_byte_ms")).sum();
    assert!(stayed > 0 && residency.iter().all(|record| record["tenant"] == "acme"), "{residency:?}");
}

/// Every end that a call can have has one record, with what the client was told.
#[tokio::test(flavor = "multi_thread")]
async fn every_end_has_its_record() {
    let two = Two::start(|_| {}).await;
    two.set("acme", json!({})).await;
    let limits = json!({ "cpu_time": "200ms" });
    two.deploys("acme", "trouble", guests::TROUBLE, json!({ "limits": limits, "request_timeout": "1s" }))
        .await;
    two.deploys("acme", "hello", guests::HELLO, json!({ "calls_per_second": 1, "call_burst": 2 })).await;
    let mut told = vec![];
    for path in ["/log", "/trap", "/spin", "/sleep"] {
        told.push(two.post("acme", "trouble", path, vec![]).await);
    }
    let gone = two.request("acme", Method::GET, "/fn/acme/trouble/sleep");
    assert!(gone.timeout(Duration::from_millis(300)).send().await.is_err());
    let mut refused = 0;
    for _ in 0..10 {
        let answer = two.post("acme", "hello", "/", vec![]).await;
        refused += u64::from(answer.status == 429);
    }
    assert!(refused >= 5);
    let data = two.stop().await;
    let records = usage::records(data.path());
    let ends: Vec<(String, u64, String)> = told
        .iter()
        .map(|answer| {
            let record = of(&records, answer);
            assert_eq!(number(record, "status"), u64::from(answer.status));
            let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
            if answer.status >= 400 && answer.code() != "(no problem)" {
                assert_eq!(text("code"), answer.code());
            }
            (text("outcome"), number(record, "calls"), text("code"))
        })
        .collect();
    println!("{ends:?}");
    let outcomes: Vec<&str> = ends.iter().map(|(outcome, ..)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["answered", "failed", "failed", "timed_out"]);
    let cancelled = calls(&records).into_iter().filter(|record| record["outcome"] == "cancelled").count();
    assert_eq!(cancelled, 1);
    let limited = records.iter().filter(|record| record["code"] == "rate_limited");
    let limited: u64 = limited.map(|record| number(record, "calls")).sum();
    assert_eq!(limited, refused, "those that were refused before they began have records together");
    assert_eq!(calls(&records).iter().filter(|record| record["function"] == "trouble").count(), 5);
}

/// The law of the bill, over a mix of batches, padding, failures, clients that leave, cold loads and evictions.
/// `WEIR_METER_SECONDS` says for how long.
#[tokio::test(flavor = "multi_thread")]
async fn the_sum_over_tenants_and_system_is_what_the_lanes_measured() {
    const TENANTS: usize = 8;
    let seconds = std::env::var("WEIR_METER_SECONDS").map_or(4, |seconds| seconds.parse().unwrap());
    let two = Two::start(|settings| {
        settings.metering.flush_interval = Duration::from_millis(200);
        settings.cpu.memory = Some(weir::units::Size::bytes(100 << 10));
    })
    .await;
    two.set("t0", json!({})).await;
    let batched = json!({ "visibility": "public", "max_batch": 8, "max_queue_delay": "2ms", "preferred_batch_sizes": [4, 8], "padding": true });
    two.model("t0", "shared", onnx::perceptron(WIDTH, 1, 1), batched).await;
    for tenant in 0..TENANTS {
        let name = format!("t{tenant}");
        two.set(&name, json!({})).await;
        two.model(&name, "own", onnx::perceptron(WIDTH, 1, 7 + tenant as u64), json!({ "keep_alive": "1s" }))
            .await;
        two.deploys(&name, "nn", guests::NN, json!({ "models": ["own", "shared"], "idle_timeout": "500ms" }))
            .await;
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mut callers = JoinSet::new();
    for caller in 0..2 * TENANTS {
        let two = Arc::clone(&two);
        callers.spawn(async move {
            let (tenant, mut answers) = (format!("t{}", caller % TENANTS), HashMap::<String, u64>::new());
            let mut random = fastrand::Rng::with_seed(caller as u64);
            while tokio::time::Instant::now() < end {
                let model = if random.bool() { "own" } else { "shared" };
                let rows = random.usize(1..4);
                let status = match random.u8(0..10) {
                    // A shape that does not fit.
                    0 => {
                        let path = format!("/raw?model={model}&input=x0&type=fp32&shape=1,3");
                        two.post(&tenant, "nn", &path, vec![0; 12]).await.status.to_string()
                    }
                    // One who leaves.
                    1 => {
                        let path = format!(
                            "/fn/{tenant}/nn/raw?model={model}&input=x0&type=fp32&shape={rows},{WIDTH}"
                        );
                        let call = two.request(&tenant, Method::POST, &path).body(vec![0; rows * 256]);
                        let patience = Duration::from_micros(random.u64(0..3000));
                        match call.timeout(patience).send().await {
                            Ok(_) => "in time".to_owned(),
                            Err(_) => "left".to_owned(),
                        }
                    }
                    _ => two.infer(&tenant, model, rows).await.status.to_string(),
                };
                *answers.entry(status).or_default() += 1;
            }
            answers
        });
    }
    let mut answers = BTreeMap::<String, u64>::new();
    while let Some(one) = callers.join_next().await {
        for (status, count) in one.unwrap() {
            *answers.entry(status).or_default() += count;
        }
    }
    let devices = two.server.devices.clone();
    let data = two.stop().await;
    let records = usage::records(data.path());
    // What stays in memory after the last record.
    let left: u128 = devices.take_held().iter().map(|held| held.byte_ns).sum();
    let device = &devices.stats().devices[0];
    let (mut by_tenant, mut loads, mut memory) = (BTreeMap::<&str, u64>::new(), 0, 0);
    for record in &records {
        for used in record["uses"].as_array().into_iter().flatten() {
            *by_tenant.entry(record["tenant"].as_str().unwrap()).or_default() += number(used, "device_ns");
            loads += number(used, "load_ns");
            memory += number(used, "memory_byte_ms") + number(used, "reserved_byte_ms");
        }
    }
    by_tenant.retain(|_, nanos| *nanos > 0);
    let measured: BTreeMap<&str, u64> = device
        .device_time
        .iter()
        .map(|(tenant, nanos)| (&**tenant, *nanos))
        .filter(|(_, nanos)| *nanos > 0)
        .collect();
    let stats = devices.stats();
    println!("{} records of {answers:?}", records.len());
    println!(
        "{} batches of {} requests, {} evictions, {} failed inferences",
        stats.batches, stats.batched, stats.evictions, stats.failed_inferences
    );
    println!(
        "lanes: {} ns, records: {} ns; by tenant {by_tenant:?}",
        device.used,
        by_tenant.values().sum::<u64>()
    );
    println!("loads: {} ns, records: {loads} ns", device.load_time);
    println!("memory: {} byte·ns, records: {memory} byte·ms", device.memory.byte_ns);
    assert!(stats.batches > 0 && answers.contains_key("left") && stats.evictions > 0);
    assert_eq!(by_tenant, measured);
    assert_eq!(by_tenant.values().sum::<u64>(), device.used, "difference 0");
    assert_eq!(loads, device.load_time, "difference 0");
    // Of each part less than a byte × millisecond waits to be a whole one; and graphs stay for the moment between two looks.
    let recorded = u128::from(memory) * 1_000_000 + left;
    let rest = device.memory.byte_ns - recorded;
    println!("memory that is in no record yet: {rest} byte·ns");
    let parts = 4 * TENANTS as u128;
    let held = u128::from(device.memory.used) * 1_000_000_000;
    assert!(rest <= parts * 1_000_000 + held, "{rest}");
}

/// What a client has received whole has exactly one record, however often the server is killed.
/// `WEIR_METER_KILLS` says how often.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_no_record_of_an_answer() {
    let kills = std::env::var("WEIR_METER_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(6);
    let mut heard: Vec<String> = vec![];
    for round in 0..kills {
        let process = Process::serve(data.path()).await;
        let client = weir_tests::Client::new(&process.url);
        if round == 0 {
            let hello = std::fs::read(guests::HELLO).unwrap();
            assert_eq!(client.deploy("hello", hello, &json!({})).await.status, 201);
        }
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let (url, http) = (process.url.clone(), reqwest::Client::builder().no_proxy().build().unwrap());
            callers.spawn(async move {
                let mut heard = vec![];
                loop {
                    let Ok(answer) = http.get(format!("{url}/fn/default/hello/")).send().await else { break };
                    let id = answer.headers()["weir-call"].to_str().unwrap().to_owned();
                    // Whole, or nothing.
                    if answer.status() != 200 || answer.bytes().await.is_err() {
                        break;
                    }
                    heard.push(id);
                }
                heard
            });
        }
        tokio::time::sleep(Duration::from_millis(random.u64(20..400))).await;
        process.kill().await;
        while let Some(one) = callers.join_next().await {
            heard.extend(one.unwrap());
        }
    }
    // The next start mends what was cut off.
    let process = Process::serve(data.path()).await;
    process.signal("TERM");
    assert_eq!(process.ends().await, Some(0));
    let folder = data.path().to_str().unwrap();
    let verified = tokio::process::Command::new(Process::binary("weir"))
        .args(["usage", "verify", "--data-dir", folder])
        .output()
        .await
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    println!("{}", String::from_utf8_lossy(&verified.stdout).trim());
    let records = usage::records(data.path());
    let mut times = HashMap::<&str, u32>::new();
    for record in &records {
        *times.entry(record["id"].as_str().unwrap()).or_default() += 1;
    }
    println!("{kills} kills, {} answers heard, {} records", heard.len(), records.len());
    assert!(heard.len() > 20);
    assert!(times.values().all(|times| *times == 1), "no record is there twice");
    for id in &heard {
        assert_eq!(times.get(id.as_str()), Some(&1), "{id}");
    }
}
