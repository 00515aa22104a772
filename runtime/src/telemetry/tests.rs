use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};

use super::count::{Histogram, INNER_BOUNDS};
use super::names::{self, ALL, Kind};
use super::otlp;
use super::snapshot::{Form, Sample, Snapshot};

fn snapshot() -> Snapshot {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let mut snapshot = Snapshot { since: SystemTime::UNIX_EPOCH, at, families: vec![] };
    snapshot.one(&names::OPERATORS, 7_u64);
    snapshot.one(&names::WORKERS_BUSY, 1.5);
    snapshot.add(&names::LANES, [Sample::new(["a\"b\\\n"], 2_u64)]);
    let histogram = Histogram::new(INNER_BOUNDS);
    histogram.observe(Duration::from_micros(20));
    histogram.observe(Duration::from_secs(100));
    snapshot.add(&names::QUEUE_SECONDS, [Sample::new(["cpu0"], histogram.get())]);
    snapshot
}

#[test]
fn both_forms_of_text_have_the_same_numbers() {
    let open = snapshot().text(Form::OpenMetrics).unwrap();
    let plain = snapshot().text(Form::Prometheus).unwrap();
    assert!(open.contains("# TYPE weir_operators counter\nweir_operators_total 7\n"), "{open}");
    assert!(plain.contains("# TYPE weir_operators_total counter\nweir_operators_total 7\n"), "{plain}");
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&open), samples(&plain));
    assert!(open.contains("weir_lanes{device=\"a\\\"b\\\\\\n\"} 2\n"), "{open}");
    assert!(open.contains("weir_inference_queue_seconds_bucket{le=\"+Inf\",device=\"cpu0\"} 2\n"), "{open}");
}

#[test]
fn otlp_carries_the_numbers_of_the_text() {
    let metrics = otlp::metrics(&snapshot());
    let data = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().data.clone().unwrap();
    let metric::Data::Sum(sum) = data("weir_operators") else { panic!("not a sum") };
    assert!(sum.is_monotonic);
    assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsInt(7)));
    let metric::Data::Sum(busy) = data("weir_workers_busy_seconds") else { panic!("not a sum") };
    assert_eq!(busy.data_points[0].value, Some(number_data_point::Value::AsDouble(1.5)));
    let metric::Data::Gauge(lanes) = data("weir_lanes") else { panic!("not a gauge") };
    assert_eq!(lanes.data_points[0].attributes[0].key, "device");
    let metric::Data::Histogram(queue) = data("weir_inference_queue_seconds") else { panic!("no histogram") };
    let point = &queue.data_points[0];
    assert_eq!((point.count, point.sum), (2, Some(100.000_02)));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!((point.bucket_counts[1], point.bucket_counts.last()), (1, Some(&1)));
    assert_eq!(point.time_unix_nano, 1_000_000_000_000);
}

#[test]
fn names_are_as_the_conventions_have_them() {
    let names: HashSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len());
    for metric in ALL {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        assert!(metric.name.starts_with("weir_") || metric.name.starts_with("process_"), "{}", metric.name);
        assert!(!metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.help);
    }
}

#[test]
fn the_docs_have_each_metric() {
    let docs = include_str!("../../../docs/observability.md");
    for metric in ALL {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (metric.kind.name(), labels.join(", "));
        let row = format!("| `{}` | {kind} | {labels} | {} |\n", metric.name, metric.help);
        assert!(docs.contains(&row), "docs/observability.md lacks {row}");
    }
    let rows = docs.lines().filter(|line| line.starts_with("| `weir_") || line.starts_with("| `process_"));
    assert_eq!(rows.count(), ALL.len(), "docs/observability.md has metrics that there are not");
}
