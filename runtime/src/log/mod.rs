//! The server's own log: as lines on stderr, text or JSON, and over OTLP. And functions' lines on their way to the latter.
//!
//! What is logged on behalf of a call says which trace it is part of ([`crate::trace::current`]).

mod item;
mod json;
mod layer;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::Weir;
use crate::otlp::Exporter;
pub(crate) use item::{LogItem, Shipper, nanos};

/// How the server's log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The log of this process.
pub struct Log {
    exporter: Arc<OnceLock<Arc<Exporter>>>,
}

impl Log {
    /// Has this process log to stderr, what `filter` says.
    pub fn start(format: Format, filter: EnvFilter) -> Self {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            // Whoever read stderr may have gone: that is no reason for what was to be logged to fail.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal());
        let lines = match format {
            Format::Text => lines.boxed(),
            Format::Json => lines.event_format(json::Json).boxed(),
        };
        let exporter = Arc::<OnceLock<_>>::default();
        let export = layer::Export::new(Arc::clone(&exporter));
        tracing_subscriber::registry().with(filter).with(lines).with(export).init();
        Self { exporter }
    }

    /// Has what is logged from now on go where the server's settings say, too.
    pub fn export(&self, weir: &Weir) {
        if let Some(exporter) = weir.node.exporter.as_ref().filter(|exporter| exporter.has_logs()) {
            let _ = self.exporter.set(Arc::clone(exporter));
        }
    }
}
