//! Lanes: the right to run one operator at a time on a device.
//!
//! A job holds a lane while it runs. When all lanes are held, jobs wait in a bounded queue, by class and then in
//! order of arrival; a job that would pass the bound is refused at once. A waiter that has gone is skipped: its
//! lane goes to the next one. Waiting costs no thread.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Error;

/// How urgent a job is. A job of an earlier class goes before all waiting jobs of later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    Critical,
    #[default]
    Standard,
    Batch,
}

/// The lanes of one device.
#[derive(Debug)]
pub(crate) struct Lanes {
    device: String,
    total: usize,
    queue: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    critical: VecDeque<oneshot::Sender<Lane>>,
    standard: VecDeque<oneshot::Sender<Lane>>,
    batch: VecDeque<oneshot::Sender<Lane>>,
}

/// A held lane. Dropping it hands it to the next waiter.
#[derive(Debug)]
pub(crate) struct Lane {
    state: Arc<Mutex<State>>,
    held: bool,
}

pub(crate) struct LaneStats {
    pub total: usize,
    pub busy: usize,
    pub queued: usize,
}

impl State {
    fn class(&mut self, class: Class) -> &mut VecDeque<oneshot::Sender<Lane>> {
        match class {
            Class::Critical => &mut self.critical,
            Class::Standard => &mut self.standard,
            Class::Batch => &mut self.batch,
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<Lane>> {
        self.critical.pop_front().or_else(|| self.standard.pop_front()).or_else(|| self.batch.pop_front())
    }

    /// Waiting jobs whose callers are still there.
    fn queued(&self) -> usize {
        [&self.critical, &self.standard, &self.batch]
            .into_iter()
            .flatten()
            .filter(|waiter| !waiter.is_closed())
            .count()
    }

    fn forget_gone(&mut self) {
        for queue in [&mut self.critical, &mut self.standard, &mut self.batch] {
            queue.retain(|waiter| !waiter.is_closed());
        }
    }
}

/// No code panics while it holds the lock, and the state is whole between any two statements.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lanes {
    /// `total` lanes and at most `queue` waiting jobs.
    pub fn new(device: &str, total: NonZeroUsize, queue: usize) -> Self {
        let state = State {
            free: total.get(),
            critical: VecDeque::new(),
            standard: VecDeque::new(),
            batch: VecDeque::new(),
        };
        Self { device: device.to_owned(), total: total.get(), queue, state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for a lane.
    ///
    /// # Errors
    /// [`Error::QueueFull`] at once, when as many jobs wait as may.
    pub async fn acquire(&self, class: Class) -> Result<Lane, Error> {
        let turn = {
            let mut state = lock(&self.state);
            if state.free > 0 {
                state.free -= 1;
                return Ok(Lane { state: Arc::clone(&self.state), held: true });
            }
            let queued = state.queued();
            if queued >= self.queue {
                return Err(Error::QueueFull { device: self.device.clone(), queued });
            }
            state.forget_gone();
            let (sender, turn) = oneshot::channel();
            state.class(class).push_back(sender);
            turn
        };
        turn.await.map_err(|_| Error::Cancelled)
    }

    pub fn stats(&self) -> LaneStats {
        let state = lock(&self.state);
        LaneStats { total: self.total, busy: self.total - state.free, queued: state.queued() }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        loop {
            let waiter = {
                let mut state = lock(&self.state);
                match state.next() {
                    Some(waiter) => waiter,
                    None => {
                        state.free += 1;
                        return;
                    }
                }
            };
            let lane = Lane { state: Arc::clone(&self.state), held: true };
            match waiter.send(lane) {
                Ok(()) => return,
                // This waiter has gone: the lane comes back and goes to the next one.
                Err(mut lane) => lane.held = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn lanes(total: usize, queue: usize) -> Lanes {
        Lanes::new("test", NonZeroUsize::new(total).unwrap(), queue)
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let lanes = lanes(1, 1);
        let held = lanes.acquire(Class::Standard).await.unwrap();
        let mut waiting = Box::pin(lanes.acquire(Class::Standard));
        assert!(waiting.as_mut().now_or_never().is_none());
        let refused = lanes.acquire(Class::Critical).await.unwrap_err();
        assert_eq!(refused, Error::QueueFull { device: "test".to_owned(), queued: 1 });
        drop(held);
        assert!(waiting.await.is_ok());
        assert_eq!(lanes.stats().busy, 0);
    }

    #[tokio::test]
    async fn classes_go_in_order_and_arrivals_within_a_class() {
        let lanes = lanes(1, 8);
        let held = lanes.acquire(Class::Standard).await.unwrap();
        let order = Mutex::new(Vec::new());
        let wait = |name: &'static str, class| {
            let (lanes, order) = (&lanes, &order);
            async move {
                let _lane = lanes.acquire(class).await.unwrap();
                order.lock().unwrap().push(name);
            }
        };
        let (mut batch, mut first) =
            (Box::pin(wait("batch", Class::Batch)), Box::pin(wait("first", Class::Standard)));
        let (mut second, mut urgent) =
            (Box::pin(wait("second", Class::Standard)), Box::pin(wait("urgent", Class::Critical)));
        for waiter in
            [&mut batch as &mut (dyn Future<Output = ()> + Unpin), &mut first, &mut second, &mut urgent]
        {
            assert!(waiter.now_or_never().is_none());
        }
        drop(held);
        futures::join!(batch, first, second, urgent);
        assert_eq!(*order.lock().unwrap(), ["urgent", "first", "second", "batch"]);
    }

    #[tokio::test]
    async fn a_waiter_that_has_gone_is_skipped_and_leaks_no_lane() {
        let lanes = lanes(1, 8);
        let held = lanes.acquire(Class::Standard).await.unwrap();
        let mut gone = Box::pin(lanes.acquire(Class::Standard));
        let mut next = Box::pin(lanes.acquire(Class::Standard));
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        assert_eq!(lanes.stats().queued, 1);
        drop(held);
        drop(next.await.unwrap());
        assert_eq!(lanes.stats().busy, 0);
    }

    #[tokio::test]
    async fn a_lane_handed_to_a_waiter_that_goes_before_it_looks_comes_back() {
        let lanes = lanes(1, 8);
        let held = lanes.acquire(Class::Standard).await.unwrap();
        let mut waiting = Box::pin(lanes.acquire(Class::Standard));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert_eq!(lanes.stats().busy, 1, "the lane is on its way to the waiter");
        drop(waiting);
        assert_eq!(lanes.stats().busy, 0);
    }
}
