//! The three signals: what waits of each, and the message that a batch of it is.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics, metric};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;

use super::queue::Weighed;
use crate::log::LogItem;
use crate::trace::{CallTrace, names, spans};

/// Where batches of a signal go.
pub struct Route {
    pub signal: &'static str,
    /// The method of the service.
    pub grpc: &'static str,
    /// The path below the endpoint.
    pub http: &'static str,
}

/// What waits of a signal.
pub trait Item: Weighed + Send + 'static {
    const ROUTE: Route;

    /// The message of a batch, and how many spans, log records or points are in it.
    fn encode(batch: &[Self], from: &Resource) -> (Bytes, u64)
    where
        Self: Sized;
}

fn scope() -> Option<InstrumentationScope> {
    let (name, version) = (names::SCOPE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(InstrumentationScope { name, version, ..InstrumentationScope::default() })
}

impl Item for CallTrace {
    const ROUTE: Route = Route {
        signal: "traces",
        grpc: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        http: "/v1/traces",
    };

    fn encode(batch: &[Self], from: &Resource) -> (Bytes, u64) {
        let mut all = Vec::with_capacity(batch.len());
        for call in batch {
            spans::of(call, &mut all);
        }
        let count = all.len() as u64;
        let schema_url = names::SCHEMA.to_owned();
        let scope_spans = vec![ScopeSpans { scope: scope(), spans: all, schema_url: schema_url.clone() }];
        let spans = ResourceSpans { resource: Some(from.clone()), scope_spans, schema_url };
        let request = ExportTraceServiceRequest { resource_spans: vec![spans] };
        (request.encode_to_vec().into(), count)
    }
}

impl Item for LogItem {
    const ROUTE: Route = Route {
        signal: "logs",
        grpc: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        http: "/v1/logs",
    };

    fn encode(batch: &[Self], from: &Resource) -> (Bytes, u64) {
        let log_records = batch.iter().map(Self::record).collect();
        let schema_url = names::SCHEMA.to_owned();
        let scope_logs = vec![ScopeLogs { scope: scope(), log_records, schema_url: schema_url.clone() }];
        let logs = ResourceLogs { resource: Some(from.clone()), scope_logs, schema_url };
        let request = ExportLogsServiceRequest { resource_logs: vec![logs] };
        (request.encode_to_vec().into(), batch.len() as u64)
    }
}

/// Metrics as they were at one moment.
pub struct MetricSet(pub Vec<Metric>);

impl Weighed for MetricSet {
    fn weight(&self) -> usize {
        self.0.iter().map(Message::encoded_len).sum()
    }

    /// Points.
    fn count(&self) -> u64 {
        self.0.iter().map(points).sum::<usize>() as u64
    }
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(metric::Data::Gauge(data)) => data.data_points.len(),
        Some(metric::Data::Sum(data)) => data.data_points.len(),
        Some(metric::Data::Histogram(data)) => data.data_points.len(),
        Some(metric::Data::ExponentialHistogram(data)) => data.data_points.len(),
        Some(metric::Data::Summary(data)) => data.data_points.len(),
        None => 0,
    }
}

impl Item for MetricSet {
    const ROUTE: Route = Route {
        signal: "metrics",
        grpc: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        http: "/v1/metrics",
    };

    fn encode(batch: &[Self], from: &Resource) -> (Bytes, u64) {
        let schema_url = names::SCHEMA.to_owned();
        let of = |set: &Self| ScopeMetrics {
            scope: scope(),
            metrics: set.0.clone(),
            schema_url: schema_url.clone(),
        };
        let scope_metrics = batch.iter().map(of).collect();
        let metrics =
            ResourceMetrics { resource: Some(from.clone()), scope_metrics, schema_url: schema_url.clone() };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![metrics] };
        (request.encode_to_vec().into(), batch.iter().map(Weighed::count).sum())
    }
}
