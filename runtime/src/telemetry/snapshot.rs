//! All metrics as they stood at one time, and as text. `otlp.rs` makes the same numbers what OTLP carries.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::count::Spread;
use super::names::{Kind, Metric};

/// All metrics.
#[derive(Debug)]
pub struct Snapshot {
    /// When counting began, but for series that began later.
    pub since: SystemTime,
    pub at: SystemTime,
    pub families: Vec<Family>,
}

/// A metric's series.
#[derive(Debug)]
pub struct Family {
    pub metric: &'static Metric,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    /// Values of the metric's labels, in their order.
    pub labels: Vec<Arc<str>>,
    pub value: Value,
    /// When it began, where that was after the server's start.
    pub since: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Whole(u64),
    Real(f64),
    Spread(Spread),
}

impl From<u64> for Value {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<usize> for Value {
    fn from(whole: usize) -> Self {
        Self::Whole(whole as u64)
    }
}

impl From<u32> for Value {
    fn from(whole: u32) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<Spread> for Value {
    fn from(spread: Spread) -> Self {
        Self::Spread(spread)
    }
}

impl Sample {
    pub fn new(labels: impl IntoIterator<Item = impl Into<Arc<str>>>, value: impl Into<Value>) -> Self {
        let labels = labels.into_iter().map(Into::into).collect();
        Self { labels, value: value.into(), since: None }
    }
}

/// A form of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own, 0.0.4, which more can read.
    Prometheus,
}

impl Form {
    /// What whoever sends this `Accept` header reads.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Snapshot {
    /// Adds a metric with all of its series.
    pub fn add(&mut self, metric: &'static Metric, samples: impl IntoIterator<Item = Sample>) {
        self.families.push(Family { metric, samples: samples.into_iter().collect() });
    }

    /// Adds a metric that has no labels.
    pub fn one(&mut self, metric: &'static Metric, value: impl Into<Value>) {
        self.known(metric, Some(value));
    }

    /// The same for one whose value may not be known.
    pub fn known(&mut self, metric: &'static Metric, value: Option<impl Into<Value>>) {
        self.add(metric, value.map(|value| Sample { labels: vec![], value: value.into(), since: None }));
    }

    /// As text.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn text(self, form: Form) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Shown { snapshot: self, form }));
        let mut text = String::new();
        match form {
            Form::OpenMetrics => encode(&mut text, &registry)?,
            Form::Prometheus => encode_registry(&mut text, &registry)?,
        }
        Ok(text)
    }
}

#[derive(Debug)]
struct Shown {
    snapshot: Snapshot,
    form: Form,
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, samples } in &self.snapshot.families {
            let (name, kind) = match (self.form, metric.kind) {
                // The encoder adds `_total` to what it counts.
                (Form::OpenMetrics, kind) => (metric.base(), kind),
                (Form::Prometheus, Kind::Counter) => (metric.name, Kind::Gauge),
                (Form::Prometheus, kind) => (metric.name, kind),
            };
            let shown = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(name, metric.help, None, shown)?;
            for sample in samples {
                let labels = Labels(metric.labels, &sample.labels);
                match metric.labels {
                    [] => write(&mut encoder, kind, &sample.value)?,
                    _ => write(&mut encoder.encode_family(&labels)?, kind, &sample.value)?,
                }
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(whole)) => encoder.encode_counter::<NoLabelSet, _, u64>(whole, None),
        (Kind::Counter, Value::Real(real)) => encoder.encode_counter::<NoLabelSet, _, u64>(real, None),
        (_, Value::Whole(whole)) => encoder.encode_gauge(whole),
        (_, Value::Real(real)) => encoder.encode_gauge(real),
        (_, Value::Spread(spread)) => {
            let bounds = spread.seconds().chain([f64::MAX]);
            let buckets: Vec<_> = bounds.zip(spread.counts.iter().copied()).collect();
            encoder.encode_histogram::<NoLabelSet>(spread.sum(), spread.count(), &buckets, None)
        }
    }
}

impl Spread {
    /// The bounds, in seconds.
    pub fn seconds(&self) -> impl Iterator<Item = f64> {
        self.bounds.iter().map(|nanos| seconds(*nanos))
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// In seconds.
    pub fn sum(&self) -> f64 {
        seconds(self.nanos)
    }
}

/// Nanoseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "a sum of days is exact to the microsecond")]
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A label's value as both forms of text have it, which the encoder does not see to.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
}

/// Names and values of labels.
struct Labels<'a>(&'static [&'static str], &'a [Arc<str>]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0
            .iter()
            .zip(self.1)
            .try_for_each(|(name, value)| (*name, &*escaped(value)).encode(encoder.encode_label()))
    }
}
