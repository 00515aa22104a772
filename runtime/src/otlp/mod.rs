//! The exporter: traces, metrics and logs, by OpenTelemetry's protocol (OTLP), over gRPC or HTTP.
//!
//! ```text
//! queue.rs      what waits: so much and no more
//! signal.rs     the three signals, and their messages
//! send.rs       takes batches from a queue, and sends them until they are taken or given up
//! transport.rs  gRPC and HTTP
//! retry.rs      what the receiver's answers mean
//! counts.rs     what has become of all of it
//! ```
//!
//! Whatever becomes of the receiver, nothing that serves calls waits for it, and no more memory is used than the queues
//! have: what finds no room is dropped and counted. Each signal has a queue and a task of its own, so that one that is stuck
//! does not hold up the others.

pub mod counts;
pub mod queue;
mod retry;
mod send;
pub mod signal;
mod transport;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::OtlpConfig;
use crate::log::LogItem;
use crate::trace::recording::Bounds;
use crate::trace::{CallTrace, names, value};
pub use counts::{Count, Counts};
use queue::Queue;
use send::Sender;
use signal::{Item, MetricSet};
use transport::Transport;

/// Sends what it is given, when it can.
pub struct Exporter {
    traces: Option<Arc<Queue<CallTrace>>>,
    metrics: Option<Arc<Queue<MetricSet>>>,
    logs: Option<Arc<Queue<LogItem>>>,
    bounds: Bounds,
    counts: Arc<Counts>,
    stop: CancellationToken,
    flush_timeout: Duration,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Exporter {
    /// The exporter that the settings ask for, if they name a receiver. Whether that is there is not looked at.
    ///
    /// # Errors
    /// An endpoint or a file that cannot be used.
    pub fn start(config: &OtlpConfig) -> anyhow::Result<Option<Arc<Self>>> {
        let mut exporter = Self::empty(config);
        let resource = resource(config)?;
        if config.traces {
            exporter.traces = exporter.signal(config, &resource, |counts| &counts.traces)?;
        }
        if config.metrics {
            exporter.metrics = exporter.signal(config, &resource, |counts| &counts.metrics)?;
        }
        if config.logs {
            exporter.logs = exporter.signal(config, &resource, |counts| &counts.logs)?;
        }
        let is_used = exporter.traces.is_some() || exporter.metrics.is_some() || exporter.logs.is_some();
        Ok(is_used.then(|| Arc::new(exporter)))
    }

    fn empty(config: &OtlpConfig) -> Self {
        Self {
            traces: None,
            metrics: None,
            logs: None,
            bounds: Bounds {
                spans: config.spans,
                lines: config.lines,
                line_bytes: config.line_bytes.as_usize(),
                client: config.client_address,
            },
            counts: Arc::default(),
            stop: CancellationToken::new(),
            flush_timeout: config.flush_timeout,
            tasks: Mutex::default(),
        }
    }

    fn queue<T: Item>(&self, config: &OtlpConfig, count: fn(&Counts) -> &Count) -> Arc<Queue<T>> {
        let bounds = queue::Bounds {
            items: config.queue.get(),
            bytes: config.queue_bytes.as_usize(),
            batch: config.batch.get(),
            batch_bytes: config.batch_bytes.as_usize(),
        };
        Arc::new(Queue::new(bounds, Arc::clone(&self.counts), count))
    }

    /// One signal's queue, and the task that sends what is in it; none where it has no receiver.
    fn signal<T: Item>(
        &self,
        config: &OtlpConfig,
        resource: &Resource,
        count: fn(&Counts) -> &Count,
    ) -> anyhow::Result<Option<Arc<Queue<T>>>> {
        let Some(transport) = Transport::new(config, &T::ROUTE)? else { return Ok(None) };
        let queue = self.queue(config, count);
        let sender = Sender {
            queue: Arc::clone(&queue),
            transport,
            resource: resource.clone(),
            timeout: config.timeout,
            retry_for: config.retry_for,
            delay: config.delay,
            stop: self.stop.clone(),
        };
        self.tasks().push(tokio::spawn(sender.run()));
        Ok(Some(queue))
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_traces(&self) -> bool {
        self.traces.is_some()
    }

    pub fn has_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    pub fn has_logs(&self) -> bool {
        self.logs.is_some()
    }

    /// How much of a call's trace is kept.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// What has become of what it was given.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// A call has ended.
    pub fn trace(&self, call: CallTrace) {
        if let Some(traces) = &self.traces {
            traces.put(call);
        }
    }

    /// A line for the logs. It is made only if somebody wants it.
    pub fn log(&self, line: impl FnOnce() -> LogItem) {
        if let Some(logs) = &self.logs {
            logs.put(line());
        }
    }

    /// All metrics as they are now.
    pub fn metrics(&self, metrics: Vec<Metric>) {
        if let Some(queue) = &self.metrics {
            queue.put(MetricSet(metrics));
        }
    }

    /// Sends what is still there, for as long as a stop waits for that. What is left then is dropped and counted.
    pub async fn close(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks());
        let all = futures::future::join_all(tasks.iter_mut());
        if tokio::time::timeout(self.flush_timeout, all).await.is_err() {
            for task in &tasks {
                task.abort();
            }
            let waited = humantime::format_duration(self.flush_timeout);
            tracing::warn!("the receiver of traces, metrics and logs did not take all within {waited}");
        }
        if let Some(queue) = &self.traces {
            queue.close();
        }
        if let Some(queue) = &self.metrics {
            queue.close();
        }
        if let Some(queue) = &self.logs {
            queue.close();
        }
    }
}

impl Drop for Exporter {
    /// Where nobody has closed it, nobody waits for what is left.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What all that is sent is of.
fn resource(config: &OtlpConfig) -> anyhow::Result<Resource> {
    let instance = hex::encode(crate::random::<8>()?);
    let own = [
        (names::SERVICE_NAME, config.service_name.as_str()),
        (names::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        (names::SERVICE_INSTANCE, instance.as_str()),
    ];
    // What the operator says holds over what the server says of itself.
    let is_not_said = |(name, _): &(&str, &str)| !config.resource.contains_key(*name);
    let said = config.resource.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let attributes = own.into_iter().filter(is_not_said).chain(said);
    let attributes = attributes.map(|(name, text)| value::text(name, text)).collect();
    Ok(Resource { attributes, ..Resource::default() })
}

#[cfg(test)]
impl Exporter {
    /// One whose queues nobody empties.
    pub fn to_nowhere() -> Self {
        let config = OtlpConfig::default();
        let mut exporter = Self::empty(&config);
        exporter.traces = Some(exporter.queue(&config, |counts| &counts.traces));
        exporter.logs = Some(exporter.queue(&config, |counts| &counts.logs));
        exporter
    }

    pub fn take_trace(&self) -> Option<CallTrace> {
        self.traces.as_ref()?.take().0.pop()
    }

    pub fn take_logs(&self) -> Vec<LogItem> {
        self.logs.as_ref().map(|logs| logs.take().0).unwrap_or_default()
    }
}
