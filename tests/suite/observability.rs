//! What is in deploy/observability is about metrics that there are, and each alert says what to do.

use std::collections::BTreeSet;

use serde_json::json;
use weir_tests::{Server, guests, onnx};

fn file(path: &str) -> String {
    std::fs::read_to_string(weir_tests::root().join(path)).unwrap()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("weir_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_dashboard_are_about_metrics_that_there_are() {
    let server = Server::start().await;
    assert_eq!(server.deploy("hello", guests::HELLO, json!({})).await.status, 201);
    assert_eq!(server.call("hello", "/", vec![]).await.status, 200);
    // What has labels is only seen once it has happened: an inference, and a limit.
    assert_eq!(server.put_model("m", onnx::perceptron(64, 1, 1)).await.status, 201);
    assert_eq!(server.deploy("nn", guests::NN, json!({ "models": ["m"] })).await.status, 201);
    let inferred = server.call("nn", "/raw?model=m&input=x0&type=fp32&shape=1,64", vec![0; 256]).await;
    assert_eq!(inferred.status, 200, "{}", inferred.text());
    let limits = json!({ "limits": { "request_bytes": 1 } });
    assert_eq!(server.deploy("small", guests::HELLO, limits).await.status, 201);
    assert!(server.call("small", "/", vec![0; 9]).await.status >= 400);
    let text = server.get("/metrics").await.text();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut known = BTreeSet::new();
    for (family, kind) in families {
        match kind {
            "counter" => known.insert(format!("{family}_total")),
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
