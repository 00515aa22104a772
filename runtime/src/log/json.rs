//! A line of the server's log as JSON: `timestamp`, `level`, `target`, `fields` with the `message` among them, and within a
//! call `trace_id` and `span_id`.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::trace::{context, current};

pub struct Json;

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    fields: Map<String, Value>,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (fields, target) = Fields::of(event);
        let span = current::current();
        let line = Line {
            timestamp: humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            level: event.metadata().level().as_str(),
            fields: fields.0,
            target: &target,
            trace_id: span.map(|span| context::text(&span.trace)),
            span_id: span.map(|span| hex::encode(span.span)),
        };
        let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

/// The fields of an event, as JSON.
#[derive(Default)]
pub struct Fields(pub Map<String, Value>);

impl Fields {
    /// What an event says, and of which part of the program it is. Those of the crate `log` have that among their fields.
    pub fn of(event: &Event<'_>) -> (Self, Cow<'static, str>) {
        let mut fields = Self::default();
        event.record(&mut fields);
        let target = event.metadata().target();
        if target != "log" {
            return (fields, Cow::Borrowed(target));
        }
        let own = fields.0.get("log.target").and_then(Value::as_str).unwrap_or(target).to_owned();
        fields.0.retain(|name, _| !name.starts_with("log."));
        (fields, Cow::Owned(own))
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::trace::Context;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_line_within_a_call_names_its_trace() {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(Json).with_writer(move || writer.clone());
        let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let call = Context::root(|_| true);
        tracing::info!(number = 7, share = 0.5, "outside \"it\"\n");
        current::within(&call, async { tracing::warn!(error = %"no", "inside") }).await;
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [outside, inside] = &lines[..] else { panic!("{text}") };
        assert_eq!((&outside["level"], &outside["target"]), (&"INFO".into(), &module_path!().into()));
        assert_eq!(
            outside["fields"],
            serde_json::json!({ "number": 7, "share": 0.5, "message": "outside \"it\"\n" })
        );
        assert_eq!((outside.get("trace_id"), outside.get("span_id")), (None, None));
        assert_eq!(inside["trace_id"], hex::encode(call.trace));
        assert_eq!(inside["span_id"], hex::encode(call.span));
        assert_eq!(inside["fields"]["error"], "no");
        humantime::parse_rfc3339(inside["timestamp"].as_str().unwrap()).unwrap();
    }
}
