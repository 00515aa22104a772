//! Lanes: the right to run one operator at a time on a device.
//!
//! A job waits for a lane, without a thread, and holds it while it runs. Between its operators it asks whether it is to
//! make way ([`Lane::checkpoint`]): its thread then waits until it is its turn again, and the lane goes on with another
//! job at once. Whose turn it is, [`Fair`] decides, and who may wait for it, [`Queue`]; here are the lock around them, the
//! clock, and those who wait.
//!
//! Requests that may ride together board trains ([`Lanes::board`]): each is a job with several requests, which departs
//! when it gets its lane. A request that is alone is a job of its own ([`Lanes::acquire`]). Whoever goes away while it
//! waits is out of the queue at once.

mod train;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Class;
use super::batch::{Batching, Departure, Filling, Trains};
use super::fair::{Fair, GraphId, JobId, Rider, Running, Sharing};
use super::quarantine::Quarantine;
use super::queue::{Asking, Queue, Refused};
use super::times::{Times, Work};
use crate::Error;
use crate::error::nanos;
use crate::tab::Tab;

use train::Company;
pub(crate) use train::{TrainKey, Trial, Turn};

/// What a tenant may have of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantShare {
    /// Its part of device time, where others of its class want some too: twice the weight, twice the time.
    pub weight: u32,
    /// The most urgent class that its jobs may have; more urgent ones are of this class.
    pub class: Class,
    /// The most requests that may wait for the device.
    pub queue: usize,
    /// The most bytes of the CPU device's memory; only the device's capacity when absent.
    pub memory: Option<u64>,
    /// The same of a GPU's.
    pub gpu_memory: Option<u64>,
}

impl Default for TenantShare {
    fn default() -> Self {
        Self { weight: 1, class: Class::Critical, queue: 256, memory: None, gpu_memory: None }
    }
}

impl TenantShare {
    /// What its jobs that ask for `class` are.
    pub(crate) fn class(&self, class: Class) -> Class {
        class.max(self.class)
    }
}

/// A request that waits for a lane.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub tenant: Arc<str>,
    pub class: Class,
    pub graph: GraphId,
    pub rows: u64,
    /// Stands for the [shape](super::times::shape) of its rows.
    pub shape: u64,
    pub deadline: Option<Instant>,
}

impl Request {
    /// A run of so many rows like its own.
    fn work(&self, rows: u64) -> Work {
        Work { graph: self.graph, rows, shape: self.shape }
    }
}

/// The lanes of one device. `P` is what a request that rides with others brings along.
pub(crate) struct Lanes<P>(Arc<Shared<P>>);

struct Shared<P> {
    device: String,
    total: usize,
    /// Where this device's time begins.
    epoch: Instant,
    state: Mutex<State<P>>,
}

struct State<P> {
    fair: Fair,
    times: Times,
    free: usize,
    trains: Trains<Company, (Seat, P)>,
    quarantine: Quarantine,
    waiting: HashMap<JobId, Waiting<P>>,
    /// Where those are who ride with others, while they wait.
    seats: HashMap<Seat, (JobId, Arc<str>)>,
    queue: Queue,
    /// What the operator has set.
    shares: HashMap<Arc<str>, TenantShare>,
    default_share: TenantShare,
    ids: u64,
    suspensions: u64,
    /// Nanoseconds that lanes were used, and those of them that are on nobody's tab.
    used: u64,
    unbilled: u64,
}

type Seat = u64;

enum Waiting<P> {
    /// Has not begun.
    New { grant: oneshot::Sender<Lane<P>>, train: Option<Arc<Batching>>, tenants: Vec<Arc<str>>, shape: u64 },
    /// Has a thread that waits; nothing comes if nobody wants the job any more.
    Begun(SyncSender<Option<Running>>),
}

/// A held lane. Dropping it hands it to who is next.
pub(crate) struct Lane<P> {
    shared: Arc<Shared<P>>,
    running: Option<Running>,
    shape: u64,
    /// Since when the lane has been used and not charged for; none before the job begins.
    since: Option<Instant>,
    used: Duration,
    /// Of the job's requests, in their order.
    tabs: Vec<Arc<Tab>>,
    departure: Option<Departure<(Seat, P)>>,
}

/// A place in the queue. Dropping it leaves the queue.
struct Place<'a, P> {
    shared: &'a Arc<Shared<P>>,
    job: JobId,
}

/// The lanes at one moment.
#[derive(Debug, Clone)]
pub(crate) struct LaneStats {
    pub total: usize,
    pub busy: usize,
    /// Requests that have not begun.
    pub queued: usize,
    pub queued_by: Vec<(Arc<str>, usize)>,
    /// Jobs that have begun and made way.
    pub suspended: usize,
    /// How often a job has made way.
    pub suspensions: u64,
    /// Nanoseconds of device time, by tenant.
    pub device_time: BTreeMap<Arc<str>, u64>,
    /// Nanoseconds that lanes were used since the start, and those of them that are on nobody's tab.
    pub used: u64,
    pub unbilled: u64,
}

impl<P> Clone for Lanes<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Send> Lanes<P> {
    /// `total` lanes and at most `queue` waiting requests.
    pub fn new(
        device: &str,
        total: NonZeroUsize,
        queue: usize,
        sharing: Sharing,
        share: TenantShare,
    ) -> Self {
        let state = State {
            fair: Fair::new(sharing),
            times: Times::default(),
            free: total.get(),
            trains: Trains::new(),
            quarantine: Quarantine::default(),
            waiting: HashMap::new(),
            seats: HashMap::new(),
            queue: Queue::new(queue, total.get()),
            shares: HashMap::new(),
            default_share: share,
            ids: 0,
            suspensions: 0,
            used: 0,
            unbilled: 0,
        };
        let (device, total, epoch) = (device.to_owned(), total.get(), Instant::now());
        Self(Arc::new(Shared { device, total, epoch, state: Mutex::new(state) }))
    }

    /// Sets what a tenant may have, from its next request on.
    pub fn set_share(&self, tenant: &Arc<str>, share: TenantShare) {
        self.0.lock().shares.insert(Arc::clone(tenant), share);
    }

    /// Waits for a lane, for requests that are one job.
    ///
    /// # Errors
    /// At once [`Error::QueueFull`], [`Error::TenantQueueFull`], and [`Error::DeadlineTooSoon`] for what is known to take
    /// longer.
    pub async fn acquire(&self, requests: &[Request]) -> Result<Lane<P>, Error> {
        let (place, granted) = {
            let mut state = self.0.lock();
            let now = self.0.now();
            // A free lane is taken at once: there is no queue to be bounded.
            let waits = state.free == 0;
            let mut riders: Vec<(Rider, u64)> = Vec::with_capacity(requests.len());
            for request in requests {
                match self.0.admit(&state, request, waits, now) {
                    Ok(rider) => riders.push(rider),
                    Err(refused) => {
                        riders.iter().for_each(|(rider, _)| state.queue.leave(&rider.tenant));
                        return Err(refused);
                    }
                }
                state.queue.enter(&request.tenant);
            }
            let job = state.id();
            for (request, (rider, expected)) in requests.iter().zip(&riders) {
                let waits = (0, *expected);
                if !state.fair.join(job, rider, waits, now) {
                    state.fair.arrive(job, request.graph, rider, waits, now);
                }
            }
            let (grant, granted) = oneshot::channel();
            let tenants = requests.iter().map(|request| Arc::clone(&request.tenant)).collect();
            let shape = requests.first().map_or(0, |request| request.shape);
            state.waiting.insert(job, Waiting::New { grant, train: None, tenants, shape });
            (Place { shared: &self.0, job }, granted)
        };
        self.0.dispatch(None);
        let lane = granted.await.map_err(|_| Error::Cancelled)?;
        drop(place);
        Ok(lane)
    }

    /// Has a job that has begun and made way end now, if it waits: its thread is told that nobody wants it.
    pub fn cancel(&self, job: JobId) {
        let mut state = self.0.lock();
        if matches!(state.waiting.get(&job), Some(Waiting::Begun(_))) {
            let now = self.0.now();
            while !state.fair.leave(job, 0, now) {}
            if let Some(Waiting::Begun(waker)) = state.waiting.remove(&job) {
                let _ = waker.send(None);
            }
        }
    }

    pub fn stats(&self) -> LaneStats {
        let state = self.0.lock();
        LaneStats {
            total: self.0.total,
            busy: self.0.total - state.free,
            queued: state.queue.len(),
            queued_by: state.queue.by_tenant(),
            suspended: state.waiting.values().filter(|waiting| matches!(waiting, Waiting::Begun(_))).count(),
            suspensions: state.suspensions,
            device_time: state.fair.device_time(),
            used: state.used,
            unbilled: state.unbilled,
        }
    }
}

impl<P> Shared<P> {
    /// No code panics while it holds the lock, and the state is whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }

    /// Whether a request may wait here: as whose job it does, and how long it will take at least.
    fn admit(
        &self,
        state: &State<P>,
        request: &Request,
        waits: bool,
        now: u64,
    ) -> Result<(Rider, u64), Error> {
        let Request { tenant, class, rows, deadline, .. } = request;
        let share = state.shares.get(tenant).unwrap_or(&state.default_share);
        let (class, weight) = (share.class(*class), share.weight);
        let rider = Rider { tenant: Arc::clone(tenant), class, weight, rows: (*rows).max(1) };
        let expected = state.times.at_least(request.work(*rows), now).unwrap_or(0);
        let left = deadline.map(|deadline| nanos(deadline.saturating_duration_since(Instant::now())));
        let asking = Asking { tenant, most: share.queue, rider: &rider, waits, expected, left };
        match state.queue.admit(&state.fair, &asking) {
            Ok(()) => Ok((rider, expected)),
            Err(refused) => Err(self.error(tenant, refused)),
        }
    }

    fn error(&self, tenant: &str, refused: Refused) -> Error {
        let device = self.device.clone();
        match refused {
            Refused::QueueFull { queued } => Error::QueueFull { device, queued },
            Refused::TenantQueueFull { queued } => {
                Error::TenantQueueFull { device, tenant: tenant.to_owned(), queued }
            }
            Refused::DeadlineTooSoon { needed, left } => {
                let (needed, left) = (Duration::from_nanos(needed), Duration::from_nanos(left));
                Error::DeadlineTooSoon { needed, left }
            }
        }
    }

    /// Gives free lanes to those whose turn it is. `last` is what ran on the one that has just become free.
    fn dispatch(self: &Arc<Self>, last: Option<GraphId>) {
        loop {
            let (running, waiting, departure) = {
                let mut state = self.lock();
                if state.free == 0 {
                    return;
                }
                let now = self.now();
                let Some(running) = state.fair.next(last, now) else { return };
                state.free -= 1;
                let waiting = state.waiting.remove(&running.job);
                let departure = state.begin(waiting.as_ref(), running.job);
                (running, waiting, departure)
            };
            match waiting {
                Some(Waiting::New { grant, shape, .. }) => {
                    let (shared, running) = (Arc::clone(self), Some(running));
                    let (used, tabs) = (Duration::ZERO, Vec::new());
                    let lane = Lane { shared, running, shape, since: None, used, tabs, departure };
                    // If nobody takes it any more, it is dropped and comes back.
                    let _ = grant.send(lane);
                }
                // There is room for one, and it is waited for.
                Some(Waiting::Begun(waker)) => {
                    let _ = waker.send(Some(running));
                }
                None => self.free(running),
            }
        }
    }

    /// Takes a lane back.
    fn free(&self, running: Running) {
        let mut state = self.lock();
        let now = self.now();
        state.fair.end(running, now);
        state.free += 1;
    }
}

impl<P> State<P> {
    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A job's requests do not wait any more; a train departs.
    fn begin(&mut self, waiting: Option<&Waiting<P>>, job: JobId) -> Option<Departure<(Seat, P)>> {
        let Some(Waiting::New { train, tenants, .. }) = waiting else { return None };
        for tenant in tenants {
            self.queue.leave(tenant);
        }
        let departure = self.trains.depart(job, train.as_ref()?)?;
        for ((seat, _), _) in &departure.riders {
            if let Some((_, tenant)) = self.seats.remove(seat) {
                self.queue.leave(&tenant);
            }
        }
        Some(departure)
    }

    /// A job that has not begun is out of the queue.
    fn withdraw(&mut self, job: JobId, now: u64) {
        if let Some(Waiting::New { tenants, .. }) = self.waiting.remove(&job) {
            while !self.fair.leave(job, 0, now) {}
            for tenant in &tenants {
                self.queue.leave(tenant);
            }
        }
    }
}

impl<P> Drop for Place<'_, P> {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.lock().withdraw(self.job, now);
    }
}

impl<P> Lane<P> {
    /// The job's number, to cancel it by; none if the lane has been lost.
    pub fn job(&self) -> Option<JobId> {
        self.running.as_ref().map(|running| running.job)
    }

    /// Those who ride on it, with their rows, if it is a train's.
    pub fn riders(&mut self) -> Option<(Vec<(P, u64)>, Filling)> {
        let Departure { riders, filling } = self.departure.take()?;
        let seated = riders.into_iter().map(|((_, passenger), rows)| (passenger, rows));
        Some((seated.collect(), filling))
    }

    /// The job begins, with these rows of zeros: from now on its time is charged, and written on its requests' tabs.
    pub fn start(&mut self, filling: Filling, tabs: Vec<Arc<Tab>>) {
        if let Some(running) = &mut self.running {
            running.filling = filling;
        }
        self.tabs = tabs;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether the job would make way if it were asked now.
    pub fn is_to_make_way(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.charge(&mut state);
        let now = shared.now();
        self.running.as_ref().is_some_and(|running| state.fair.yields(running, now))
    }

    /// Between two operators: the time since the last is charged, and if another job is better this one makes way, and
    /// waits here until it is its turn again. One that is `gone` does not begin to wait.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if nobody wants the job any more. It has no lane then.
    pub fn checkpoint(&mut self, gone: impl Fn() -> bool) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let (waits, graph) = {
            let mut state = shared.lock();
            self.charge(&mut state);
            let now = shared.now();
            let Some(running) = self.running.as_ref() else { return Err(Error::Cancelled) };
            // Asked under the lock, and told before it is taken to cancel the job: one of the two sees the other.
            if gone() || !state.fair.yields(running, now) {
                return Ok(());
            }
            let Some(running) = self.running.take() else { return Err(Error::Cancelled) };
            let (job, graph) = (running.job, running.graph);
            let (waker, waits) = sync_channel(1);
            state.fair.suspend(running);
            state.waiting.insert(job, Waiting::Begun(waker));
            state.free += 1;
            state.suspensions += 1;
            (waits, graph)
        };
        shared.dispatch(Some(graph));
        self.running = waits.recv().ok().flatten();
        self.since = Some(Instant::now());
        self.running.as_ref().map(|_| ()).ok_or(Error::Cancelled)
    }

    /// The run is done: how long it took is remembered for others like it.
    pub fn finish(&mut self, rows: u64) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.charge(&mut state);
        if let Some(running) = &self.running {
            let work = Work { graph: running.graph, rows, shape: self.shape };
            state.times.learn(work, nanos(self.used), shared.now());
        }
    }

    fn charge(&mut self, state: &mut State<P>) {
        let Some(since) = self.since else { return };
        let now = Instant::now();
        let took = now.saturating_duration_since(since);
        self.since = Some(now);
        self.used = self.used.saturating_add(took);
        let took = nanos(took);
        // One that has made way and was told to end has no lane.
        let Some(running) = &self.running else { return };
        let (mut tabs, mut billed) = (self.tabs.iter(), 0u64);
        state.fair.charge(running, took, |part| {
            if let Some(tab) = tabs.next() {
                tab.used_lane(part);
                billed = billed.saturating_add(part);
            }
        });
        state.used = state.used.saturating_add(took);
        state.unbilled = state.unbilled.saturating_add(took.saturating_sub(billed));
    }
}

impl<P> Drop for Lane<P> {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        {
            let mut state = shared.lock();
            self.charge(&mut state);
        }
        let Some(running) = self.running.take() else { return };
        let graph = running.graph;
        shared.free(running);
        shared.dispatch(Some(graph));
    }
}

#[cfg(test)]
mod tests;
