//! Who may run now, who waits, and who is refused.
//!
//! A call needs one of its function's permits and one of its tenant's; a sandbox needs one of the node's, of which some are
//! kept for each tenant that has a floor. Waiting is bounded twice, by the queues' lengths and by the call's patience, and
//! what is refused is refused at once with a time to come back. The narrow permit comes before the wide one, and nobody
//! waits for a permit that only it could free.

mod pool;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;

pub use pool::{Permit, Pool};

/// How many calls may run, and how many may wait: of one revision, or of all functions of a tenant.
pub struct Gate {
    whose: Arc<str>,
    running: Arc<Pool>,
    waiting: AtomicU32,
    queue: AtomicU32,
}

/// Why a call was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many calls of the function wait as may.
    QueueFull { running: u32, waiting: u32 },
    /// As many calls of the tenant wait as may.
    TenantQueueFull { running: u32, waiting: u32 },
    /// It waited as long as it may.
    TimedOut,
}

/// A call that may run: its function's permit, and its tenant's.
pub type Admitted = (Permit, Permit);

impl Gate {
    pub fn new(whose: Arc<str>, concurrency: u32, queue: u32) -> Self {
        Self {
            whose,
            running: Pool::new(concurrency),
            waiting: AtomicU32::new(0),
            queue: AtomicU32::new(queue),
        }
    }

    /// How many may run and wait, from now on. Those that do go on.
    pub fn resize(&self, concurrency: u32, queue: u32) {
        self.queue.store(queue, Ordering::Relaxed);
        self.running.resize(concurrency);
    }

    /// Calls that run, and that wait.
    pub fn used(&self) -> (u32, u32) {
        (self.running.held(), self.waiting.load(Ordering::Relaxed))
    }

    fn place(&self) -> Option<Place<'_>> {
        Place::take(&self.waiting, self.queue.load(Ordering::Relaxed))
    }

    fn full(&self) -> (u32, u32) {
        (self.running.most(), self.queue.load(Ordering::Relaxed))
    }

    /// One of the function's permits and then one of its tenant's, each in order of arrival. A call that waits for the
    /// second has the first, so that it is in nobody's way but its own function's.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`] and [`Refusal::TenantQueueFull`] at once; [`Refusal::TimedOut`] after `patience`.
    pub async fn enter(&self, tenant: &Self, patience: Duration) -> Result<Admitted, Refusal> {
        let started = Instant::now();
        let function = self.running.try_enter(&self.whose);
        if let Some(function) = function {
            return tenant.enter_as_tenant(function, patience).await;
        }
        let full = |(running, waiting)| Refusal::QueueFull { running, waiting };
        let function = {
            let _place = self.place().ok_or_else(|| full(self.full()))?;
            let _of_tenant = tenant.place().ok_or_else(|| tenant.tenant_full())?;
            self.running.enter(&self.whose, patience).await.ok_or(Refusal::TimedOut)?
        };
        tenant.enter_as_tenant(function, patience.saturating_sub(started.elapsed())).await
    }

    async fn enter_as_tenant(&self, function: Permit, patience: Duration) -> Result<Admitted, Refusal> {
        if let Some(permit) = self.running.try_enter(&self.whose) {
            return Ok((function, permit));
        }
        let _place = self.place().ok_or_else(|| self.tenant_full())?;
        let permit = self.running.enter(&self.whose, patience).await.ok_or(Refusal::TimedOut)?;
        Ok((function, permit))
    }

    fn tenant_full(&self) -> Refusal {
        let (running, waiting) = self.full();
        Refusal::TenantQueueFull { running, waiting }
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

/// The gates of all tenants that there were. Without a bound, a gate lets all through and counts.
#[derive(Default)]
pub struct Gates(DashMap<Arc<str>, Arc<Gate>>);

impl Gates {
    pub fn of(&self, tenant: &str) -> Arc<Gate> {
        if let Some(gate) = self.0.get(tenant) {
            return Arc::clone(&gate);
        }
        let tenant: Arc<str> = tenant.into();
        let gate = || Arc::new(Gate::new(Arc::clone(&tenant), u32::MAX, u32::MAX));
        Arc::clone(&self.0.entry(Arc::clone(&tenant)).or_insert_with(gate))
    }

    /// How many calls of a tenant may run and wait, from now on.
    pub fn set(&self, tenant: &str, concurrency: Option<NonZeroU32>, queue: Option<u32>) {
        self.of(tenant).resize(concurrency.map_or(u32::MAX, NonZeroU32::get), queue.unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn gate(concurrency: u32, queue: u32) -> Gate {
        Gate::new("it".into(), concurrency, queue)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn at_the_limit_calls_wait_and_over_the_queue_they_are_refused() {
        let (gate, tenant) = (gate(1, 1), gate(9, 9));
        let running = gate.enter(&tenant, LONG).await.unwrap();
        let mut waiting = Box::pin(gate.enter(&tenant, LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(tenant.used(), (1, 1));
        assert_eq!(refusal(&gate, &tenant).await, Refusal::QueueFull { running: 1, waiting: 1 });
        drop(running);
        drop(waiting.await.unwrap());
        assert!(gate.enter(&tenant, LONG).await.is_ok(), "both the permit and the place came back");
        assert_eq!(tenant.used(), (0, 0));
    }

    async fn refusal(gate: &Gate, tenant: &Gate) -> Refusal {
        match gate.enter(tenant, LONG).now_or_never() {
            Some(Err(refusal)) => refusal,
            Some(Ok(_)) => panic!("it was let in"),
            None => panic!("it waits"),
        }
    }

    #[tokio::test]
    async fn a_tenants_functions_run_and_wait_together_up_to_its_bounds() {
        let (one, two, tenant) = (gate(1, 9), gate(9, 9), gate(2, 2));
        let of_one = one.enter(&tenant, LONG).await.unwrap();
        let of_two = two.enter(&tenant, LONG).await.unwrap();
        // One waits for its function's permit, one for the tenant's; both are the tenant's.
        let mut narrow = Box::pin(one.enter(&tenant, LONG));
        let mut wide = Box::pin(two.enter(&tenant, LONG));
        assert!(narrow.as_mut().now_or_never().is_none() && wide.as_mut().now_or_never().is_none());
        assert_eq!(tenant.used(), (2, 2));
        let full = Refusal::TenantQueueFull { running: 2, waiting: 2 };
        assert_eq!(refusal(&one, &tenant).await, full);
        assert_eq!(refusal(&two, &tenant).await, full);
        // The refused hold nothing: only the one that waits has the second function's permit.
        assert_eq!((one.used(), two.used()), ((1, 1), (2, 0)));
        tenant.resize(3, 2);
        let _wide = wide.await.unwrap();
        drop(of_one);
        let _narrow = narrow.await.unwrap();
        assert_eq!(tenant.used(), (3, 0));
        tenant.resize(1, 0);
        drop(of_two);
        assert_eq!(tenant.used(), (2, 0), "those that run go on");
        assert_eq!(refusal(&two, &tenant).await, Refusal::TenantQueueFull { running: 1, waiting: 0 });
    }

    #[tokio::test]
    async fn patience_ends_and_the_place_comes_back() {
        let (gate, tenant) = (gate(1, 1), gate(9, 9));
        let _running = gate.enter(&tenant, LONG).await.unwrap();
        for _ in 0..3 {
            let refused = gate.enter(&tenant, Duration::from_millis(1)).await.err();
            assert_eq!(refused, Some(Refusal::TimedOut));
        }
        assert_eq!((gate.used(), tenant.used()), ((1, 0), (1, 0)));
    }

    #[test]
    fn a_tenant_has_one_gate() {
        let gates = Gates::default();
        gates.set("a", NonZeroU32::new(3), Some(4));
        assert_eq!(gates.of("a").full(), (3, 4));
        assert!(Arc::ptr_eq(&gates.of("a"), &gates.of("a")));
        gates.set("a", None, None);
        assert_eq!(gates.of("a").full(), (u32::MAX, u32::MAX));
    }
}
