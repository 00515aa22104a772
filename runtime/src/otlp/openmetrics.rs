//! Metrics as OTLP has them, made of the text that `/metrics` shows: so both say the same.
//!
//! The text is our own registry's, in the OpenMetrics format. What is not understood of it is left out.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use crate::trace::value;

/// A family of the text: its name without what its type adds, and its samples.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    /// What follows the family's name: `_total`, `_bucket`, …
    ending: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

/// The metrics of a text, counted since `start`, as of `now`: nanoseconds since 1970.
pub fn metrics(text: &str, start: u64, now: u64) -> Vec<Metric> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# ") {
            let mut words = said.splitn(3, ' ');
            let (what, name, rest) =
                (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if families.last().is_none_or(|family| family.name != name) && what != Some("EOF") {
                families.push(Family { name, ..Family::default() });
            }
            if let Some(family) = families.last_mut() {
                match what {
                    Some("HELP") => family.help = rest,
                    Some("TYPE") => family.kind = rest,
                    _ => {}
                }
            }
        } else if let Some(family) = families.last_mut() {
            family.samples.extend(sample(line, family.name));
        }
    }
    families.iter().filter_map(|family| family.metric(start, now)).collect()
}

/// A line, if it is a sample of this family.
fn sample<'a>(line: &'a str, family: &str) -> Option<Sample<'a>> {
    let rest = line.strip_prefix(family)?;
    let end = rest.find(['{', ' '])?;
    let (ending, rest) = rest.split_at_checked(end)?;
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    Some(Sample { ending, labels, value: value.split_whitespace().next()? })
}

/// Labels up to their closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (mut value, mut characters) = (String::new(), quoted.char_indices());
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next()? {
                    (_, 'n') => '\n',
                    (_, other) => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name, value));
        rest = quoted.get(end..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn attributes<'a>(labels: impl Iterator<Item = &'a (&'a str, String)>) -> Vec<KeyValue> {
    labels.map(|(name, text)| value::text(name, text)).collect()
}

impl Family<'_> {
    fn metric(&self, start: u64, now: u64) -> Option<Metric> {
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match self.kind {
            "counter" => Data::Sum(Sum {
                data_points: self.numbers("_total", start, now),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            "gauge" => Data::Gauge(Gauge { data_points: self.numbers("", 0, now) }),
            "histogram" => Data::Histogram(Histogram {
                data_points: self.histograms(start, now),
                aggregation_temporality: cumulative,
            }),
            _ => return None,
        };
        // In the notation of UCUM.
        let unit = if self.name.ends_with("_seconds") {
            "s"
        } else if self.name.ends_with("_bytes") {
            "By"
        } else {
            ""
        };
        let (name, description, unit) = (self.name.to_owned(), self.help.to_owned(), unit.to_owned());
        Some(Metric { name, description, unit, data: Some(data), ..Metric::default() })
    }

    fn numbers(&self, ending: &str, start: u64, now: u64) -> Vec<NumberDataPoint> {
        let samples = self.samples.iter().filter(|sample| sample.ending == ending);
        let point = |sample: &Sample<'_>| {
            let whole = sample.value.parse().map(Number::AsInt);
            let value = whole.or_else(|_| sample.value.parse().map(Number::AsDouble)).ok()?;
            Some(NumberDataPoint {
                attributes: attributes(sample.labels.iter()),
                start_time_unix_nano: start,
                time_unix_nano: now,
                value: Some(value),
                ..NumberDataPoint::default()
            })
        };
        samples.filter_map(point).collect()
    }

    /// The text counts up to each bound; a point counts between them.
    fn histograms(&self, start: u64, now: u64) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        for sample in &self.samples {
            let attributes = attributes(sample.labels.iter().filter(|(name, _)| *name != "le"));
            let at = points.iter().position(|point| point.attributes == attributes).unwrap_or_else(|| {
                let (start_time_unix_nano, time_unix_nano) = (start, now);
                points.push(HistogramDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    ..HistogramDataPoint::default()
                });
                points.len() - 1
            });
            let Some(point) = points.get_mut(at) else { continue };
            match sample.ending {
                "_sum" => point.sum = sample.value.parse().ok(),
                "_count" => point.count = sample.value.parse().unwrap_or(0),
                "_bucket" => {
                    let before: u64 = point.bucket_counts.iter().sum();
                    let upto: u64 = sample.value.parse().unwrap_or(before);
                    point.bucket_counts.push(upto.saturating_sub(before));
                    let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                    let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                    point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
                }
                _ => {}
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    use super::*;

    fn number(point: &NumberDataPoint) -> f64 {
        match point.value.unwrap() {
            Number::AsInt(whole) => whole as f64,
            Number::AsDouble(number) => number,
        }
    }

    #[test]
    fn what_is_sent_is_what_is_shown() {
        let mut registry = Registry::with_prefix("weir");
        let calls = Family::<Vec<(String, String)>, Counter>::default();
        registry.register("calls", "Calls", calls.clone());
        let strange = "a, {name} of b=c}".to_owned();
        calls
            .get_or_create(&vec![("tenant".to_owned(), strange.clone()), ("end".to_owned(), "ok".to_owned())])
            .inc_by(7);
        let bytes = Gauge::<i64>::default();
        registry.register("held_bytes", "Held", bytes.clone());
        bytes.set(-3);
        let took = Histogram::new([0.5, 1.0]);
        registry.register("call_seconds", "How long", took.clone());
        [0.25, 0.75, 0.75, 5.0].into_iter().for_each(|seconds| took.observe(seconds));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let metrics = metrics(&text, 1, 2);
        let names: Vec<_> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(
            names,
            [("weir_calls", ""), ("weir_held_bytes", "By"), ("weir_call_seconds", "s")],
            "{text}"
        );
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!() };
        assert!(sum.is_monotonic && sum.data_points.len() == 1);
        let point = &sum.data_points[0];
        assert_eq!((number(point), point.start_time_unix_nano, point.time_unix_nano), (7.0, 1, 2));
        let Some(Value::StringValue(tenant)) = &point.attributes[0].value.as_ref().unwrap().value else {
            panic!()
        };
        assert_eq!((point.attributes[0].key.as_str(), tenant), ("tenant", &strange));
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!() };
        assert_eq!(number(&gauge.data_points[0]), -3.0);
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!() };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum, &*point.explicit_bounds), (4, Some(6.75), &[0.5, 1.0][..]));
        assert_eq!(point.bucket_counts, [1, 2, 1]);
    }
}
