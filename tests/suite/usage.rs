//! What tenants and operators are told of usage: sums, records, and exports that can be verified.

use reqwest::Method;
use serde_json::{Value, json};
use weir_tests::{Answer, Process, Server, guests, onnx, until, usage};

use crate::access::Who;
use crate::quotas::Two;

const WIDTH: i64 = 64;

async fn used(server: &Server, key: &str, tenant: &str, query: &str) -> Answer {
    let request = server.request(Method::GET, &format!("/v1/usage{query}"));
    let request = if tenant.is_empty() { request } else { request.header("weir-tenant", tenant) };
    server.send(request.bearer_auth(key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_those_of_the_records_and_each_tenant_sees_its_own() {
    let two = Two::start(|_| {}).await;
    for (tenant, calls) in [("acme", 3), ("other", 2)] {
        two.set(tenant, json!({})).await;
        two.deploys(tenant, "hello", guests::HELLO, json!({})).await;
        for _ in 0..calls {
            assert_eq!(two.post(tenant, "hello", "/", b"12345".to_vec()).await.status, 200);
        }
    }
    let (server, operator) = (&two.server, Who::with(&two.key));
    let key = two.key.as_str();
    let all = used(server, key, "", "?by=tenant,function,outcome").await;
    assert_eq!(all.status, 200, "{}", all.text());
    let calls: Vec<(Value, Value)> = all.json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row["sums"]["calls"].is_null())
        .map(|row| (row["by"].clone(), row["sums"]["calls"].clone()))
        .collect();
    let of = |tenant: &str| json!({ "tenant": tenant, "function": "hello", "outcome": "answered" });
    assert_eq!(calls, [(of("acme"), json!(3)), (of("other"), json!(2))]);
    let hours = used(server, key, "acme", "?bucket=hour").await.json;
    let hour = hours["rows"][0]["start"].as_str().unwrap();
    for bucket in ["minute", "hour", "day", "month"] {
        let range = if bucket == "minute" { format!("&from={hour}") } else { String::new() };
        let one = used(server, key, "acme", &format!("?bucket={bucket}&by=function{range}")).await;
        assert_eq!(one.status, 200, "{bucket}: {}", one.text());
        let sum = |quantity: &str| -> u64 {
            one.json["rows"].as_array().unwrap().iter().filter_map(|row| row["sums"][quantity].as_u64()).sum()
        };
        assert_eq!((sum("calls"), sum("response_bytes")), (3, 42), "{bucket}: {}", one.text());
    }

    // A tenant's own key sees its own, whatever it asks for.
    let admin = operator.meaning("acme").makes(server, json!({ "role": "admin" })).await;
    let mine = admin.key.as_deref().unwrap();
    let own = used(server, mine, "", "?by=tenant").await;
    assert_eq!(own.json["tenant"], "acme");
    assert!(own.json["rows"].as_array().unwrap().iter().all(|row| row["by"]["tenant"] == "acme"));
    assert_eq!(used(server, mine, "other", "").await.status, 404);
    let records = used(server, mine, "", "/records?kind=call").await.json;
    let records = records["records"].as_array().unwrap().clone();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|line| line["record"]["tenant"] == "acme"));

    // In parts, and by what an answer said.
    let first = used(server, mine, "", "/records?kind=call&limit=2").await.json;
    let next = first["next"].as_str().unwrap();
    let rest = used(server, mine, "", &format!("/records?kind=call&limit=2&after={next}")).await.json;
    let parts = [first["records"].as_array().unwrap().clone(), rest["records"].as_array().unwrap().clone()];
    assert_eq!(parts.concat(), records);
    let call = server.request(Method::GET, "/fn/acme/hello/").bearer_auth(key);
    let call = call.header("traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01");
    let id = server.send(call).await.headers["weir-call"].to_str().unwrap().to_owned();
    for query in [format!("id={id}"), "trace=0123456789abcdef0123456789abcdef".to_owned()] {
        let found = used(server, mine, "", &format!("/records?{query}")).await.json;
        assert_eq!(found["records"].as_array().unwrap().len(), 1, "{query}: {found}");
        assert_eq!(found["records"][0]["record"]["id"], id);
    }

    // With costs: what has a price.
    let card = json!({
        "currency": "EUR", "effective_from": hour, "prices": { "calls": { "million_calls": "2.5" }, "devices": {} },
    });
    let set = server.request(Method::PUT, "/v1/rate-cards/default").bearer_auth(key).json(&card);
    let set = server.send(set).await;
    assert!([200, 201].contains(&set.status), "{}", set.text());
    let focus = used(server, key, "other", "?format=focus").await.text();
    let lines: Vec<Vec<&str>> = focus.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    assert_eq!(lines.len(), 2, "{focus}");
    for (name, value) in [
        ("BilledCost", "0.000005"),
        ("BillingCurrency", "EUR"),
        ("ConsumedQuantity", "0.000002"),
        ("ConsumedUnit", "million_calls"),
        ("ListUnitPrice", "2.5"),
        ("ResourceId", "hello"),
        ("SubAccountId", "other"),
    ] {
        assert_eq!(lines[1][column(name)], value, "{name}");
    }

    for (query, says) in [
        ("?format=focus&by=function", "leave out by"),
        ("?by=colour", "`colour`"),
        ("?from=yesterday", "`yesterday`"),
        ("?from=2026-12-03T00:00:00Z&to=2026-12-02T00:00:00Z", "not after"),
        ("?bucket=minute&from=2026-01-01T00:00:00Z", "by the minute"),
        ("?outcome=fine", "`fine`"),
        ("/records?after=here", "`here`"),
        ("/records?limit=0", "limit is 0"),
    ] {
        let refused = used(server, mine, "", query).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_request"), "{query}: {}", refused.text());
        assert!(refused.text().contains(says), "{query}: {}", refused.text());
    }
    two.stop().await;
}

/// The command line: a table, bars, CSV, an export, and what verifies it.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_usage_and_verifies_it_offline() {
    let data = tempfile::tempdir().unwrap();
    let settings = "[metering]\nflush_interval = \"100ms\"\n";
    let server = Process::serve_with(data.path(), settings).await;
    let client = weir_tests::Client::new(&server.url);
    assert_eq!(client.put_model("m", onnx::perceptron(WIDTH, 1, 1)).await.status, 201);
    let component = std::fs::read(guests::NN).unwrap();
    assert_eq!(client.deploy("nn", component, &json!({ "models": ["m"] })).await.status, 201);
    for rows in 1..=3 {
        let path = format!("/raw?model=m&input=x0&type=fp32&shape={rows},{WIDTH}");
        let heard = client.hear(client.call("nn", &path, vec![0; rows * 256])).await;
        assert!(format!("{heard:?}").contains("200"), "{heard:?}");
    }
    let run = async |arguments: &[&str]| {
        let output = server.command(arguments).await;
        let (said, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{arguments:?}: {error}");
        said
    };
    let table = run(&["usage", "--by", "function"]).await;
    println!("{table}");
    assert!(table.lines().any(|line| line.starts_with("nn") && line.contains(" 3 ")), "{table}");
    let bars = run(&["usage", "--by", "model", "--chart", "inferences"]).await;
    println!("{bars}");
    assert!(
        bars.lines().any(|line| line.starts_with("m ") && line.contains('█') && line.ends_with('3')),
        "{bars}"
    );
    let csv = run(&["usage", "--by", "function,model", "--since", "1h", "--format", "csv"]).await;
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let place = head.iter().position(|name| *name == "inferences").unwrap();
    let sum: u64 =
        csv.lines().skip(1).map(|line| line.split(',').nth(place).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 3);

    // The records are all of one tenant's, but for the system's.
    until("the last use is recorded", async || {
        let records = run(&["usage", "records", "--kind", "call"]).await;
        records.lines().count() == 3
    })
    .await;
    let export = run(&["usage", "records", "--tenant", "default"]).await;
    let lines: Vec<&str> = export.lines().filter(|line| line.contains("\"tenant\":\"default\"")).collect();
    let file = data.path().join("export.jsonl");
    let verify = async |text: String| {
        std::fs::write(&file, text).unwrap();
        server.command(&["usage", "verify", file.to_str().unwrap()]).await
    };
    let whole = verify(lines.join("\n")).await;
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    let changed = verify(lines.join("\n").replacen("\"calls\":1", "\"calls\":2", 1)).await;
    assert!(!changed.status.success(), "a changed digit is found");
    let rows = run(&["usage", "records", "--format", "csv"]).await;
    assert!(rows.lines().next().unwrap().starts_with("id,time,tenant,kind,"));
    server.signal("TERM");
    assert_eq!(server.ends().await, Some(0));

    let told = Process::run(
        &["usage", "verify", "--data-dir", data.path().to_str().unwrap()],
        "http://localhost:1",
        data.path(),
    )
    .await;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert!(usage::records(data.path()).len() >= 3);
}
