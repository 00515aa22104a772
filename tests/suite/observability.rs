//! Metrics: what is counted and under which labels; and that what is in deploy/observability is about them.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::json;
use weir_tests::{Server, guests, metric, onnx};

use crate::quotas::Two;

fn file(path: &str) -> String {
    std::fs::read_to_string(weir_tests::root().join(path)).unwrap()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("weir_") || word.starts_with("process_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_dashboard_are_about_metrics_that_there_are() {
    let server = Server::start().await;
    assert_eq!(server.deploy("hello", guests::HELLO, json!({})).await.status, 201);
    assert_eq!(server.call("hello", "/", vec![]).await.status, 200);
    let text = server.get("/metrics").await.text();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut known = BTreeSet::new();
    for (family, kind) in families {
        match kind {
            "histogram" => known.insert(format!("{family}_bucket")),
            _ => known.insert(family.to_owned()),
        };
    }
    for path in ["alerts.yml", "alerts.test.yml", "dashboard.json"] {
        let text = file(&format!("deploy/observability/{path}"));
        let names = names(&text);
        assert!(!names.is_empty());
        let unknown: Vec<_> = names.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{path} is about {unknown:?}");
    }
}

#[test]
fn each_alert_has_its_line_of_the_runbook() {
    let (rules, docs) = (file("deploy/observability/alerts.yml"), file("docs/observability.md"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        assert!(docs.contains(&format!("\n### {alert}\n\n")), "{alert} is not in docs/observability.md");
        let anchor = format!("runbook: docs/observability.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&anchor), "{alert} names no runbook");
    }
}

/// Sees that these series have these values: see [`metric`].
#[track_caller]
fn assert_series(text: &str, expected: &[(&str, f64)]) {
    for (series, value) in expected {
        assert_eq!(metric(text, series), *value, "{series} of\n{text}");
    }
}

/// All metrics, as the operator sees them.
async fn scrape(two: &Two) -> String {
    two.server.send(two.server.request(Method::GET, "/metrics").bearer_auth(&two.key)).await.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_tenant_and_function_and_refusals_by_code() {
    let two = Two::start(|_| {}).await;
    two.deploys("acme", "hello", guests::HELLO, json!({})).await;
    two.deploys("other", "hello", guests::HELLO, json!({})).await;
    two.deploys("other", "small", guests::HELLO, json!({ "limits": { "request_bytes": 1 } })).await;
    two.deploys("other", "seldom", guests::HELLO, json!({ "calls_per_second": 1 })).await;
    let call = async |path: &str, body: &'static [u8]| {
        two.server.send(two.request("acme", Method::POST, path).body(body)).await.status
    };
    for (path, body, status) in [
        ("/fn/acme/hello/", &b""[..], 200),
        ("/fn/acme/hello/", b"", 200),
        ("/fn/other/hello/", b"", 200),
        ("/fn/other/small/", b"too much", 413),
        ("/fn/other/small/", b"too much", 413),
        ("/fn/other/seldom/", b"", 200),
        ("/fn/other/seldom/", b"", 429),
        ("/fn/other/nothing/", b"", 404),
        ("/v1/nothing", b"", 404),
    ] {
        assert_eq!(call(path, body).await, status, "{path}");
    }
    let text = scrape(&two).await;
    assert_series(
        &text,
        &[
            ("weir_calls_total{tenant=\"acme\",function=\"hello\",outcome=\"answered\"}", 2.0),
            ("weir_calls_total{tenant=\"other\",function=\"hello\",outcome=\"answered\"}", 1.0),
            ("weir_calls_total{tenant=\"other\",function=\"small\",outcome=\"refused\"}", 2.0),
            ("weir_calls_total{tenant=\"other\",function=\"seldom\",outcome=\"answered\"}", 1.0),
            ("weir_calls_total{tenant=\"other\",function=\"seldom\",outcome=\"refused\"}", 1.0),
            ("weir_calls_total", 7.0),
            ("weir_call_seconds_count{tenant=\"acme\",function=\"hello\"}", 2.0),
            ("weir_call_seconds_count", 7.0),
            ("weir_call_problems_total{tenant=\"other\",function=\"small\",code=\"too_large\"}", 2.0),
            ("weir_call_problems_total{tenant=\"other\",function=\"seldom\",code=\"rate_limited\"}", 1.0),
            ("weir_call_problems_total", 3.0),
            ("weir_problems_total{code=\"too_large\"}", 2.0),
            ("weir_problems_total{code=\"rate_limited\"}", 1.0),
            ("weir_problems_total{code=\"not_found\"}", 2.0),
            ("weir_cold_starts_total{tenant=\"acme\",function=\"hello\"}", 1.0),
            ("weir_calls_in_flight", 0.0),
            ("weir_folded_functions", 0.0),
            ("weir_functions", 4.0),
            ("weir_store_up", 1.0),
        ],
    );
    for series in ["process_resident_memory_bytes", "process_open_fds", "weir_database_bytes"] {
        assert!(metric(&text, series) > 0.0, "{series} of\n{text}");
    }
    let version = format!("weir_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_bounded_and_what_has_none_is_counted_together() {
    let two = Two::start(|settings| {
        (settings.metrics.tenants, settings.metrics.functions_per_tenant) = (1, 2);
    })
    .await;
    for number in 0..5 {
        two.deploys("acme", &format!("f{number}"), guests::HELLO, json!({})).await;
    }
    two.deploys("other", "f", guests::HELLO, json!({})).await;
    let paths = (0..5).map(|number| format!("/fn/acme/f{number}/")).chain(["/fn/other/f/".to_owned()]);
    for path in paths {
        assert_eq!(two.server.send(two.request("acme", Method::POST, &path)).await.status, 200, "{path}");
    }
    let text = scrape(&two).await;
    assert_series(
        &text,
        &[
            ("weir_calls_total{tenant=\"acme\",function=\"f0\",outcome=\"answered\"}", 1.0),
            ("weir_calls_total{tenant=\"acme\",function=\"f1\",outcome=\"answered\"}", 1.0),
            ("weir_calls_total{tenant=\"acme\",function=\"_other\",outcome=\"answered\"}", 3.0),
            ("weir_calls_total{tenant=\"_other\",function=\"_other\",outcome=\"answered\"}", 1.0),
            ("weir_calls_total", 6.0),
            ("weir_folded_functions", 4.0),
            ("weir_folded_tenants", 1.0),
        ],
    );
    for hidden in ["\"f2\"", "\"f3\"", "\"f4\"", "\"other\""] {
        assert!(!text.contains(hidden), "{hidden} in\n{text}");
    }
}

/// What Prometheus' own tool says of a scrape, where it is there.
#[tokio::test(flavor = "multi_thread")]
async fn both_forms_are_as_prometheus_wants_them() {
    let server = Server::start().await;
    assert_eq!(server.put_model("m", onnx::perceptron(64, 1, 1)).await.status, 201);
    assert_eq!(server.deploy("nn", guests::NN, json!({ "models": ["m"] })).await.status, 201);
    let inferred = server.call("nn", "/raw?model=m&input=x0&type=fp32&shape=1,64", vec![0; 256]).await;
    assert_eq!(inferred.status, 200, "{}", inferred.text());
    let plain = server.get("/metrics").await;
    assert_eq!(plain.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let request = server.request(Method::GET, "/metrics");
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let open = server.send(request.header("accept", accept)).await;
    assert_eq!(open.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text().ends_with("# EOF\n"));
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = checked else {
        eprintln!("the scrape is not looked at: there is no promtool");
        return;
    };
    promtool.stdin.take().unwrap().write_all(&plain.body).unwrap();
    let said = promtool.wait_with_output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
