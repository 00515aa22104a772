//! One run of a graph: what stands between its operators, and what it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::Instant;

use crate::Error;
use crate::backend::{Between, Plan};
use crate::quota::{Kind, Reserved};
use crate::residency::{Residency, Resident};
use crate::sched::batch::{Filling, split};
use crate::sched::fair::JobId;
use crate::sched::lane::{Lane, Lanes};
use crate::tab::Tab;
use crate::tensor::Tensor;

/// Tells a job, when dropped, that nobody waits for it.
#[derive(Default)]
pub(crate) struct Present(pub Arc<AtomicBool>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends a job when it is dropped, as nobody waits for it any more: at its next operator, or where it makes way. One that has
/// ended stays as it is.
pub(crate) struct EndOnDrop<P: Send> {
    lanes: Lanes<P>,
    job: AtomicU64,
    gone: Vec<Arc<AtomicBool>>,
}

impl<P: Send> EndOnDrop<P> {
    /// The job of this number, for those whose flags these are.
    pub fn new(lanes: &Lanes<P>, job: Option<JobId>, gone: Vec<Arc<AtomicBool>>) -> Self {
        Self { lanes: lanes.clone(), job: job.unwrap_or(0).into(), gone }
    }

    /// The job goes on under another number.
    pub fn renumber(&self, job: Option<JobId>) {
        self.job.store(job.unwrap_or(0), Ordering::Relaxed);
    }
}

impl<P: Send> Drop for EndOnDrop<P> {
    fn drop(&mut self) {
        // The flags first: a job that is about to make way looks at them under the lock that is taken here after.
        self.gone.iter().for_each(|gone| gone.store(true, Ordering::Relaxed));
        self.lanes.cancel(self.job.load(Ordering::Relaxed));
    }
}

/// One who waits for a run's answer.
pub(crate) struct Waiter {
    /// On whose account its part of the run's memory is.
    pub tenant: Arc<str>,
    pub rows: u64,
    /// Where its part of what the run takes is written.
    pub tab: Arc<Tab>,
    /// Whether it has gone.
    pub gone: Arc<AtomicBool>,
}

/// A run that has its lane.
pub(crate) struct Run<P> {
    /// The first to be let go: nobody waits for a graph to be dropped.
    pub lane: Lane<P>,
    pub plan: Arc<dyn Plan>,
    /// Keeps the graph and its bytes until the plan is let go.
    pub _resident: Arc<Resident>,
    pub residency: Arc<Residency>,
    /// Whether it makes way for others. One that does not is over before that would help.
    pub yields: bool,
    /// When nobody wants the answer any more.
    pub deadline: Option<Instant>,
    pub waiters: Vec<Waiter>,
    pub filling: Filling,
    /// Counts all operators that are run.
    pub operators: Arc<AtomicU64>,
}

/// The tabs of those who wait, in their order.
pub(crate) fn tabs(waiters: &[Waiter]) -> Vec<Arc<Tab>> {
    waiters.iter().map(|waiter| Arc::clone(&waiter.tab)).collect()
}

/// A run between two operators.
struct Turn<'a, P> {
    run: &'a mut Run<P>,
    memory: Vec<Reserved>,
    rows: Vec<u64>,
    /// That it has run.
    operators: u64,
}

impl<P> Run<P> {
    /// Runs on this thread, which waits whenever the job makes way. All that it took is on its waiters' tabs when it is
    /// done.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::DeadlineExceeded`]; memory that is not to be had; what the engine says.
    pub fn run(mut self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        let plan = Arc::clone(&self.plan);
        let rows: Vec<u64> = self.waiters.iter().map(|waiter| waiter.rows).collect();
        let batch = rows.iter().fold(self.filling.rows, |sum, rows| sum.saturating_add(*rows));
        let nothing =
            |waiter: &Waiter| self.residency.reserve(&waiter.tenant, Kind::Activations, 0, &waiter.tab);
        let memory = self.waiters.iter().map(nothing).collect::<Result<_, _>>()?;
        self.lane.start(self.filling, tabs(&self.waiters));
        let mut turn = Turn { run: &mut self, memory, rows, operators: 0 };
        let outputs = plan.run(inputs, &mut turn);
        let operators = turn.operators;
        drop(turn);
        self.waiters.iter().for_each(|waiter| waiter.tab.ran(operators));
        if outputs.is_ok() {
            self.lane.finish(batch);
        }
        drop(plan);
        outputs
    }
}

impl<P> Turn<'_, P> {
    /// Has this many bytes on the accounts of those who wait, by their rows.
    fn hold(&mut self, bytes: u64) -> Result<(), Error> {
        if let [reserved] = &mut *self.memory {
            return self.run.residency.resize(reserved, bytes);
        }
        let parts = split(bytes, &self.rows, self.run.filling);
        for (reserved, part) in self.memory.iter_mut().zip(parts) {
            self.run.residency.resize(reserved, part)?;
        }
        Ok(())
    }
}

impl<P> Between for Turn<'_, P> {
    fn before(&mut self, bytes: u64) -> Result<(), Error> {
        let Run { lane, waiters, yields, .. } = &mut *self.run;
        let gone = || waiters.iter().all(|waiter| waiter.gone.load(Ordering::Relaxed));
        if *yields && self.operators > 0 {
            lane.checkpoint(gone)?;
        }
        if gone() {
            return Err(Error::Cancelled);
        }
        if self.run.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::DeadlineExceeded("running".into()));
        }
        self.hold(bytes)?;
        self.operators += 1;
        self.run.operators.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn will_wait(&mut self) -> bool {
        self.run.yields && self.run.lane.is_to_make_way()
    }

    fn after(&mut self, bytes: u64) {
        // Never more than before, but where rounding has it that one has a byte more; it is had at the next operator.
        let _ = self.hold(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use futures::FutureExt;

    use super::*;
    use crate::sched::Class;
    use crate::sched::fair::Sharing;
    use crate::sched::lane::{Request, TenantShare};

    fn request(tenant: &str, class: Class) -> Request {
        Request { tenant: tenant.into(), class, graph: 1, rows: 1, shape: 0, deadline: None }
    }

    /// A job on the only lane, one that is better, and what ends the first.
    #[tokio::test]
    async fn a_job_whose_guard_is_dropped_ends_where_it_makes_way_or_is_told() {
        let (sharing, share) = (Sharing::default(), TenantShare::default());
        let lanes = Lanes::<()>::new("test", NonZeroUsize::MIN, 8, sharing, share);
        for told_first in [true, false] {
            let long = request("long", Class::Batch);
            let lane = lanes.acquire(std::slice::from_ref(&long)).await.unwrap();
            let gone = Arc::new(AtomicBool::new(false));
            let guard = EndOnDrop::new(&lanes, None, vec![Arc::clone(&gone)]);
            guard.renumber(lane.job());
            let urgent = request("urgent", Class::Critical);
            let waiting = lanes.acquire(std::slice::from_ref(&urgent));
            tokio::pin!(waiting);
            assert!(waiting.as_mut().now_or_never().is_none());
            let end = || {
                drop(guard);
                assert!(gone.load(Ordering::Relaxed));
            };
            let asked = Arc::clone(&gone);
            let checkpoint = move || {
                let mut lane = lane;
                lane.start(Filling::default(), Vec::new());
                lane.checkpoint(|| asked.load(Ordering::Relaxed))
            };
            if told_first {
                end();
                assert_eq!(checkpoint(), Ok(()), "it does not wait, and finds the flag");
                drop(waiting.await.unwrap());
            } else {
                let running = std::thread::spawn(checkpoint);
                let urgent = waiting.await.unwrap();
                end();
                assert_eq!(running.join().unwrap(), Err(Error::Cancelled));
                drop(urgent);
            }
            assert_eq!(lanes.stats().busy, 0);
        }
    }
}
