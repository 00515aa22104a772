//! A line on its way to a receiver of logs: the server's, or a function's. OTLP's record is made of it when it is sent.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tracing::Level;

use super::json::Fields;
use crate::otlp::Exporter;
use crate::otlp::queue::Weighed;
use crate::sandbox::logs::{Line, Source};
use crate::trace::{Link, names, value};

/// One line, and the span that it is about.
pub enum LogItem {
    Server { time: SystemTime, level: Level, target: Cow<'static, str>, fields: Fields, span: Option<Link> },
    Function { line: Line, tenant: Arc<str>, function: Arc<str>, span: Option<Link> },
}

/// Gives a function's lines to the exporter.
pub struct Shipper {
    pub exporter: Arc<Exporter>,
    pub tenant: Arc<str>,
    pub function: Arc<str>,
}

impl Shipper {
    pub fn ship(&self, line: &Line, span: Option<Link>) {
        self.exporter.log(|| LogItem::Function {
            line: line.clone(),
            tenant: Arc::clone(&self.tenant),
            function: Arc::clone(&self.function),
            span,
        });
    }
}

impl Weighed for LogItem {
    fn weight(&self) -> usize {
        const ITEM: usize = 512;
        match self {
            Self::Server { fields, .. } => {
                let size = |(name, value): (&String, &serde_json::Value)| {
                    64 + name.len() + value.as_str().map_or(0, str::len)
                };
                ITEM + fields.0.iter().map(size).sum::<usize>()
            }
            Self::Function { line, .. } => ITEM + line.text.len(),
        }
    }

    fn count(&self) -> u64 {
        1
    }
}

impl LogItem {
    /// The record of it.
    pub fn record(&self) -> LogRecord {
        let (time, severity, body, attributes, span) = match self {
            Self::Server { time, level, target, fields, span } => {
                let (body, attributes) = of_server(fields, target);
                (nanos(*time), severity(*level), body, attributes, span)
            }
            Self::Function { line, tenant, function, span } => {
                let time = humantime::parse_rfc3339(&line.time).unwrap_or(UNIX_EPOCH);
                // What a program writes on stderr need not be an error.
                let severity = match line.source {
                    Source::Stdout | Source::Stderr => SeverityNumber::Info,
                    Source::Weir => SeverityNumber::Warn,
                };
                let attributes = vec![
                    value::text(names::LOG_STREAM, line.source.name()),
                    value::text(names::TENANT, &**tenant),
                    value::text(names::FUNCTION, &**function),
                    value::text(names::FAAS_NAME, &**function),
                    value::number(names::REVISION, line.revision),
                    value::number(names::CALL, line.call),
                ];
                (nanos(time), severity, line.text.clone(), attributes, span)
            }
        };
        LogRecord {
            time_unix_nano: time,
            observed_time_unix_nano: time,
            severity_number: severity.into(),
            severity_text: severity.as_str_name().trim_start_matches("SEVERITY_NUMBER_").to_owned(),
            body: Some(value::any(Value::StringValue(body))),
            attributes,
            flags: span.map_or(0, |span| u32::from(span.sampled)),
            trace_id: span.map(|span| span.trace.to_vec()).unwrap_or_default(),
            span_id: span.map(|span| span.span.to_vec()).unwrap_or_default(),
            ..LogRecord::default()
        }
    }
}

/// Nanoseconds since 1970.
pub fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        Level::TRACE => SeverityNumber::Trace,
    }
}

/// The message, and all else as attributes.
fn of_server(fields: &Fields, target: &str) -> (String, Vec<KeyValue>) {
    let mut body = String::new();
    let mut attributes = vec![value::text(names::TARGET, target)];
    for (name, field) in &fields.0 {
        let text = || field.as_str().map_or_else(|| field.to_string(), str::to_owned);
        match name.as_str() {
            "message" => body = text(),
            "error" => attributes.push(value::text(names::EXCEPTION, text())),
            name => attributes.push(match field {
                serde_json::Value::Bool(truth) => value::boolean(name, *truth),
                serde_json::Value::Number(number) if number.is_u64() => {
                    value::number(name, number.as_u64().unwrap_or_default())
                }
                _ => value::text(name, text()),
            }),
        }
    }
    (body, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_functions_line_says_whose_it_is() {
        let span = Link { trace: [1; 16], span: [2; 8], sampled: true };
        let line = Line {
            time: "2026-01-02T03:04:05.678Z".to_owned(),
            source: Source::Stderr,
            revision: 4,
            call: 9,
            text: "half done".to_owned(),
        };
        let item =
            LogItem::Function { line, tenant: "acme".into(), function: "sort".into(), span: Some(span) };
        let record = item.record();
        assert_eq!(record.time_unix_nano, 1_767_323_045_678_000_000);
        assert_eq!((record.severity_text.as_str(), record.flags), ("INFO", 1));
        assert_eq!((&record.trace_id[..], &record.span_id[..]), (&[1; 16][..], &[2; 8][..]));
        let expected = [
            value::text("log.iostream", "stderr"),
            value::text("weir.tenant", "acme"),
            value::text("weir.function", "sort"),
            value::text("faas.name", "sort"),
            value::number("weir.revision", 4),
            value::number("weir.call", 9),
        ];
        assert_eq!(record.attributes, expected);
        assert_eq!(record.body, Some(value::any(Value::StringValue("half done".to_owned()))));
    }
}
