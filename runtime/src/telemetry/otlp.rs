//! The same metrics as OTLP carries them. Source: opentelemetry-proto, `metrics/v1/metrics.proto`.
//!
//! Counters are cumulative sums that begin with the server, or with their series; the numbers are those of the text.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as OtlpMetric, NumberDataPoint, Sum,
    metric, number_data_point,
};

use super::count::Spread;
use super::names::{Kind, Metric};
use super::snapshot::{Family, Sample, Snapshot, Value};
use crate::log::nanos;
use crate::trace::value;

/// All metrics of which there are values.
pub fn metrics(snapshot: &Snapshot) -> Vec<OtlpMetric> {
    let families = snapshot.families.iter().filter(|family| !family.samples.is_empty());
    families.map(|family| of_family(family, snapshot)).collect()
}

fn of_family(Family { metric, samples }: &Family, snapshot: &Snapshot) -> OtlpMetric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let point = |sample| number(metric, sample, snapshot);
    let data = match metric.kind {
        Kind::Counter => {
            let data_points = samples.iter().filter_map(point).collect();
            metric::Data::Sum(Sum { data_points, aggregation_temporality: cumulative, is_monotonic: true })
        }
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points: samples.iter().filter_map(point).collect() }),
        Kind::Histogram => {
            let data_points = samples.iter().filter_map(|sample| spread(metric, sample, snapshot)).collect();
            metric::Data::Histogram(Histogram { data_points, aggregation_temporality: cumulative })
        }
    };
    OtlpMetric {
        name: metric.base().to_owned(),
        description: metric.help.to_owned(),
        unit: metric.unit().to_owned(),
        metadata: vec![],
        data: Some(data),
    }
}

fn attributes(metric: &Metric, sample: &Sample) -> Vec<KeyValue> {
    metric.labels.iter().zip(&sample.labels).map(|(name, text)| value::text(name, &**text)).collect()
}

/// When what only grows began.
fn start(metric: &Metric, sample: &Sample, snapshot: &Snapshot) -> u64 {
    match metric.kind {
        Kind::Gauge => 0,
        Kind::Counter | Kind::Histogram => nanos(sample.since.unwrap_or(snapshot.since)),
    }
}

fn number(metric: &Metric, sample: &Sample, snapshot: &Snapshot) -> Option<NumberDataPoint> {
    let value = match sample.value {
        Value::Whole(whole) => number_data_point::Value::AsInt(i64::try_from(whole).unwrap_or(i64::MAX)),
        Value::Real(real) => number_data_point::Value::AsDouble(real),
        Value::Spread(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(metric, sample),
        start_time_unix_nano: start(metric, sample, snapshot),
        time_unix_nano: nanos(snapshot.at),
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn spread(metric: &Metric, sample: &Sample, snapshot: &Snapshot) -> Option<HistogramDataPoint> {
    let Value::Spread(spread @ Spread { counts, .. }) = &sample.value else { return None };
    Some(HistogramDataPoint {
        attributes: attributes(metric, sample),
        start_time_unix_nano: start(metric, sample, snapshot),
        time_unix_nano: nanos(snapshot.at),
        count: spread.count(),
        sum: Some(spread.sum()),
        bucket_counts: counts.clone(),
        explicit_bounds: spread.seconds().collect(),
        ..HistogramDataPoint::default()
    })
}
