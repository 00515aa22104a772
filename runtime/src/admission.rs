//! Who may run now, who waits, and who is refused.
//!
//! A call needs one of its function's permits; a sandbox needs one of the node's. Waiting is bounded twice, by the
//! queue's length and by the call's patience, and what is refused is refused at once with a time to come back. The
//! narrow permit comes before the wide one, and nobody waits for a permit that only it could free.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The permits of one revision.
pub struct Gate {
    running: Arc<Semaphore>,
    concurrency: NonZeroU32,
    waiting: AtomicU32,
    queue: u32,
}

/// Why a call was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many calls wait as may.
    QueueFull { running: u32, waiting: u32 },
    /// It waited as long as it may.
    TimedOut,
}

impl Gate {
    pub fn new(concurrency: NonZeroU32, queue: u32) -> Self {
        let permits = usize::try_from(concurrency.get()).unwrap_or(Semaphore::MAX_PERMITS);
        Self { running: Arc::new(Semaphore::new(permits)), concurrency, waiting: AtomicU32::new(0), queue }
    }

    /// One of the revision's permits, in order of arrival.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`] at once; [`Refusal::TimedOut`] after `patience`.
    pub async fn enter(&self, patience: Duration) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = Place::take(&self.waiting, self.queue)
            .ok_or(Refusal::QueueFull { running: self.concurrency.get(), waiting: self.queue })?;
        wait(&self.running, patience).await
    }
}

/// A place in a queue, given back on drop.
struct Place<'a>(&'a AtomicU32);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicU32, most: u32) -> Option<Self> {
        let more = |waiting: u32| if waiting < most { Some(waiting + 1) } else { None };
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(waiting))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn wait(semaphore: &Arc<Semaphore>, patience: Duration) -> Result<OwnedSemaphorePermit, Refusal> {
    match tokio::time::timeout(patience, Arc::clone(semaphore).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        // Our semaphores are never closed; if one were, waiting on it would have no end.
        Ok(Err(_)) | Err(_) => Err(Refusal::TimedOut),
    }
}

/// The sandboxes that the node may have at one time, over all functions.
pub struct Sandboxes {
    permits: Arc<Semaphore>,
    waiting: AtomicU32,
    wanted: Notify,
}

impl Sandboxes {
    pub fn new(most: NonZeroU32) -> Self {
        let permits = usize::try_from(most.get()).unwrap_or(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(permits)), waiting: AtomicU32::new(0), wanted: Notify::new() }
    }

    /// A permit, in order of arrival. Whoever has to wait makes an idle sandbox, if there is one, end for it.
    ///
    /// # Errors
    /// [`Refusal::TimedOut`] after `patience`.
    pub async fn enter(&self, patience: Duration) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = Place::take(&self.waiting, u32::MAX).ok_or(Refusal::TimedOut)?;
        self.wanted.notify_one();
        wait(&self.permits, patience).await
    }

    /// Tells another idle sandbox, where one was told and did not end.
    pub fn pass_on(&self) {
        self.wanted.notify_one();
    }

    /// Ready when somebody waits for a permit: an idle sandbox must end then.
    pub async fn wanted(&self) {
        while self.waiting.load(Ordering::Relaxed) == 0 {
            self.wanted.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn gate(concurrency: u32, queue: u32) -> Gate {
        Gate::new(NonZeroU32::new(concurrency).unwrap(), queue)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn at_the_limit_calls_wait_and_over_the_queue_they_are_refused() {
        let gate = gate(1, 1);
        let running = gate.enter(LONG).await.unwrap();
        let mut waiting = Box::pin(gate.enter(LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(gate.enter(LONG).await.unwrap_err(), Refusal::QueueFull { running: 1, waiting: 1 });
        drop(running);
        assert!(waiting.await.is_ok());
        assert!(gate.enter(LONG).await.is_ok(), "both the permit and the place came back");
    }

    #[tokio::test]
    async fn an_idle_sandbox_hears_that_another_is_wanted() {
        let sandboxes = Sandboxes::new(NonZeroU32::MIN);
        let held = sandboxes.enter(LONG).await.unwrap();
        let mut idle = Box::pin(sandboxes.wanted());
        assert!(idle.as_mut().now_or_never().is_none(), "nobody waits");
        let mut caller = Box::pin(sandboxes.enter(LONG));
        assert!(caller.as_mut().now_or_never().is_none());
        idle.await;
        drop(held);
        let _held = caller.await.unwrap();
        // What was told to nobody is not held against the next.
        assert!(sandboxes.wanted().now_or_never().is_none());
    }

    #[tokio::test]
    async fn patience_ends_and_the_place_comes_back() {
        let gate = gate(1, 1);
        let _running = gate.enter(LONG).await.unwrap();
        for _ in 0..3 {
            assert_eq!(gate.enter(Duration::from_millis(1)).await.unwrap_err(), Refusal::TimedOut);
        }
    }
}
