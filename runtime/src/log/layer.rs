//! Gives the server's log to the exporter, once there is one.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::item::LogItem;
use super::json::Fields;
use crate::otlp::Exporter;
use crate::trace::current;

/// What the exporter itself says, and what carries it. If it went over OTLP, every line sent would make more.
const OWN: &[&str] = &["weir::otlp", "tonic", "h2", "hyper", "hyper_util", "reqwest", "rustls", "tower"];

pub struct Export {
    exporter: Arc<OnceLock<Arc<Exporter>>>,
}

impl Export {
    pub fn new(exporter: Arc<OnceLock<Arc<Exporter>>>) -> Self {
        Self { exporter }
    }
}

impl<S: Subscriber> Layer<S> for Export {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(exporter) = self.exporter.get() else { return };
        let (fields, target) = Fields::of(event);
        let is_below = |own: &&str| {
            target.strip_prefix(*own).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if OWN.iter().any(is_below) {
            return;
        }
        exporter.log(|| {
            let (time, level) = (SystemTime::now(), *event.metadata().level());
            LogItem::Server { time, level, target, fields, span: current::current() }
        });
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::trace::{self, value};

    #[tokio::test]
    async fn events_become_records_but_for_the_exporters_own() {
        let (exporter, cell) = (Arc::new(Exporter::to_nowhere()), Arc::<OnceLock<_>>::default());
        let layer = Export::new(Arc::clone(&cell));
        let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        tracing::info!("before there is one");
        cell.set(Arc::clone(&exporter)).ok().unwrap();
        let call = trace::Context::root(|_| true);
        let inside = async { tracing::warn!(target: "weir::node", error = %"no", count = 3, "cannot") };
        current::within(&call, inside).await;
        for own in ["weir::otlp::send", "h2::codec", "tonic", "rustls::client"] {
            match own {
                "tonic" => tracing::warn!(target: "tonic", "own"),
                "weir::otlp::send" => tracing::warn!(target: "weir::otlp::send", "own"),
                "h2::codec" => tracing::warn!(target: "h2::codec", "own"),
                _ => tracing::warn!(target: "rustls::client", "own"),
            }
        }
        tracing::error!(target: "towers", "not the exporter's");
        let logs: Vec<_> = exporter.take_logs().iter().map(LogItem::record).collect();
        let [first, second] = &logs[..] else { panic!("{logs:?}") };
        assert_eq!((first.severity_text.as_str(), second.severity_text.as_str()), ("WARN", "ERROR"));
        assert_eq!(first.body, Some(value::any(Value::StringValue("cannot".to_owned()))));
        assert_eq!((&first.trace_id[..], &first.span_id[..]), (&call.trace[..], &call.span[..]));
        assert!(second.trace_id.is_empty());
        let expected = [
            value::text("weir.log.target", "weir::node"),
            value::number("count", 3),
            value::text("exception.message", "no"),
        ];
        assert_eq!(first.attributes, expected);
    }
}
