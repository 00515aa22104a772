//! Takes batches of one signal from their queue, and sends each until it is taken or given up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::counts::{Count, add};
use super::queue::Queue;
use super::retry::{Backoff, Refused};
use super::signal::Item;
use super::transport::{Taken, Transport};
use crate::trace::random_number;

/// How often the log says that a receiver does not take what it is sent.
const TELL: Duration = Duration::from_secs(60);

pub struct Sender<T> {
    pub queue: Arc<Queue<T>>,
    pub transport: Transport,
    pub resource: Resource,
    pub timeout: Duration,
    pub retry_for: Duration,
    pub delay: Duration,
    /// What is there is sent, and then no more is waited for.
    pub stop: CancellationToken,
}

impl<T: Item> Sender<T> {
    /// Sends until the stop, and what is there then.
    pub async fn run(self) {
        let mut complaints = Complaints::default();
        loop {
            self.queue.wait(self.delay, &self.stop).await;
            // What comes after this is the last look's, or the next one's.
            let stopping = self.stop.is_cancelled();
            loop {
                let (batch, more) = self.queue.take();
                if batch.is_empty() {
                    break;
                }
                let (message, count) = T::encode(&batch, &self.resource);
                drop(batch);
                self.send(message, count, &mut complaints).await;
                if !more && !stopping {
                    break;
                }
            }
            if stopping {
                return;
            }
        }
    }

    /// Sends one batch. Told to stop, it waits for nothing: what is refused then is tried once more, and given up.
    async fn send(&self, message: Bytes, spans: u64, complaints: &mut Complaints) {
        let (begin, mut backoff) = (Instant::now(), Backoff::default());
        let count = self.queue.count();
        let mut pending = Pending { count, left: spans };
        loop {
            let last = self.stop.is_cancelled();
            let answer = timeout(self.timeout, self.transport.send(message.clone())).await;
            let (after, why) = match answer {
                Ok(Ok(Taken { rejected, message })) => {
                    let rejected = rejected.min(spans);
                    pending.left = 0;
                    add(&count.exported, spans - rejected);
                    add(&count.rejected, rejected);
                    // A text without a number is a warning, says the specification.
                    if rejected > 0 || !message.is_empty() {
                        let why = format!("it did not take {rejected} of {spans}: {message}");
                        complaints.tell(T::ROUTE.signal, &why);
                    }
                    return;
                }
                Ok(Err(Refused::Now { after, why })) => (after, why),
                Ok(Err(Refused::Ever { why })) => return complaints.tell(T::ROUTE.signal, &why),
                Err(_) => (None, format!("no answer within {}", humantime::format_duration(self.timeout))),
            };
            complaints.tell(T::ROUTE.signal, &why);
            let pause = after.unwrap_or_else(|| backoff.next(random_number()));
            if last || begin.elapsed().saturating_add(pause) > self.retry_for {
                return;
            }
            add(&count.retries, 1);
            let _ = timeout(pause, self.stop.cancelled()).await;
        }
    }
}

/// A batch on its way: what of it is not taken when it is dropped has failed.
struct Pending<'a> {
    count: &'a Count,
    left: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        add(&self.count.failed, self.left);
    }
}

/// Keeps the log from being filled with one thing.
#[derive(Default)]
struct Complaints {
    told: Option<Instant>,
    untold: u64,
}

impl Complaints {
    fn tell(&mut self, signal: &str, why: &str) {
        if self.told.is_some_and(|told| told.elapsed() < TELL) {
            self.untold += 1;
            return;
        }
        self.told = Some(Instant::now());
        let before = std::mem::take(&mut self.untold);
        tracing::warn!(signal, why, before, "the OTLP receiver does not take what it is sent");
    }
}
