//! Tells a webhook of what was used: each hour once it is over and all of it is in the sums.
//!
//! Events go one after another, the oldest first, and each is sent until the receiver takes it. Up to which hour all are taken is
//! in the store, so none is left out over restarts. One whose answer was lost is sent again, with the same id.

mod event;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use self::event::Signer;
use crate::config::WebhookConfig;
use crate::meter::Meter;
use crate::meter::filter::Filter;
use crate::meter::totals::HOUR;
use crate::receiver::{self, chain};
use crate::store::{Enough, Store, StoreError};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The setting of the authorities.
const CA: &str = "webhook.ca";

/// How often it is looked whether an hour is over.
const LOOK: Duration = Duration::from_secs(10);
/// How long the first wait is after something failed, and the longest.
const WAIT: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// Sends events.
pub struct Webhook {
    client: reqwest::Client,
    url: String,
    signer: Option<Signer>,
    timeout: Duration,
    rows: usize,
    counts: Counts,
}

/// What has become of events.
#[derive(Debug, Default)]
pub struct Counts {
    taken: AtomicU64,
    failed: AtomicU64,
    behind: AtomicU64,
}

impl Counts {
    /// Events that the receiver has taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Times that it has not taken one.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Hours that are over and of which not all is taken.
    pub fn behind(&self) -> u64 {
        self.behind.load(Ordering::Relaxed)
    }
}

/// Why not all is sent.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Refused(String),
}

impl Webhook {
    /// The webhook that the settings ask for, if they name one. Whether it is there is not looked at.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn new(config: &WebhookConfig) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(url) = config.url.clone() else { return Ok(None) };
        let ca = receiver::authorities(config.ca.as_deref(), CA)?;
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, kind);
        let client = receiver::client(headers, ca.as_deref(), CA)?;
        let signer = config.secret_file.as_deref().map(Signer::read).transpose()?;
        let (timeout, rows, counts) = (config.timeout, config.rows, Counts::default());
        Ok(Some(Arc::new(Self { client, url, signer, timeout, rows, counts })))
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sends what is to be sent, for as long as it is polled.
    pub async fn run(&self, meter: &Meter, store: &Store) {
        let mut wait = WAIT;
        loop {
            match self.send_closed(meter, store).await {
                Ok(()) => {
                    wait = WAIT;
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    let again = humantime::format_duration(wait);
                    tracing::warn!(%error, "the webhook is not told what was used; it is tried again in {again}");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST);
                }
            }
        }
    }

    /// Sends all hours that are over.
    async fn send_closed(&self, meter: &Meter, store: &Store) -> Result<(), Unsent> {
        // Nothing of these comes any more: the meter's clock does not go back.
        let closed = meter.now() / HOUR;
        let (source, mut next) = store.webhook(closed).await?;
        self.counts.behind.store(closed.saturating_sub(next), Ordering::Relaxed);
        if next >= closed || meter.stats().held > 0 {
            return Ok(());
        }
        meter.flush(store).await?;
        while let Some(hour) = store.usage_hour(next..closed).await? {
            for tenant in store.usage_tenants(hour).await? {
                self.send_hour(&source, hour, &tenant, store).await?;
            }
            next = hour + 1;
            store.webhook_told(next).await?;
            self.counts.behind.store(closed.saturating_sub(next), Ordering::Relaxed);
        }
        // In what is left nothing was used.
        if next < closed {
            store.webhook_told(closed).await?;
            self.counts.behind.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn send_hour(&self, source: &str, hour: u64, tenant: &str, store: &Store) -> Result<(), Unsent> {
        let (mut rows, filter) =
            (Vec::new(), Filter { tenant: Some(tenant.to_owned()), ..Filter::default() });
        let each = |key, sums| {
            rows.push((key, sums));
            Enough::No
        };
        store.usage(hour..hour + 1, &filter, each).await?;
        // The same rows are in the same parts, however often they are sent.
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for event in event::events(source, hour, tenant, &rows, self.rows) {
            let body = serde_json::to_vec(&event).map_err(|error| Unsent::Refused(error.to_string()))?;
            let sent = self.send(&event.id, body).await;
            let count = if sent.is_ok() { &self.counts.taken } else { &self.counts.failed };
            count.fetch_add(1, Ordering::Relaxed);
            sent?;
        }
        Ok(())
    }

    async fn send(&self, id: &str, body: Vec<u8>) -> Result<(), Unsent> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let mut request = self.client.post(&self.url).timeout(self.timeout);
        request = request.header(ID, id).header(TIMESTAMP, now);
        if let Some(signer) = &self.signer {
            request = request.header(SIGNATURE, signer.sign(id, now, &body));
        }
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| Unsent::Refused(chain(&error.without_url())))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(Unsent::Refused(format!("it answered with status {}", answer.status())))
    }
}

#[cfg(test)]
mod tests;
