//! A simulated device: its lanes and its clock, which goes from event to event. Each step is what `lane.rs` does under its
//! lock, or what a job does between two operators.
//!
//! Events of one moment go by kind, so that an operator that ends frees its lane before anybody's patience ends, and what
//! is done in time is not refused; arrivals come last.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::memory::{Key, Lease, Load, Memory};
use super::report::{Refusal, Report, Tally};
use super::{Arrival, Model, Policy};
use crate::Class;
use crate::error::nanos;
use crate::sched::batch::{Filling, Trains, split};
use crate::sched::fair::{Fair, GraphId, JobId, Rider, Running};
use crate::sched::queue::{Asking, Queue, Refused};
use crate::sched::times::{Times, Work};

type RequestId = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job's operator ends.
    Operator(JobId),
    /// A graph is loaded.
    Loaded(GraphId),
    /// A graph may have been idle for long enough.
    Idle(GraphId),
    /// A request's patience in the queue ends.
    Patience(RequestId),
    /// A request's deadline passes.
    Deadline(RequestId),
}

struct Request {
    arrival: Arrival,
    graph: GraphId,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Its graph is on its way.
    Loading,
    /// It waits for a lane.
    Queued(JobId),
    /// Its job has begun.
    Begun { job: JobId, at: u64 },
    /// It was refused after that.
    Gone,
}

/// A job that waits or runs.
struct Job<'a> {
    graph: GraphId,
    model: &'a Model,
    /// Those on board and their rows; of a train, none before it departs.
    riders: Vec<(RequestId, u64)>,
    filling: Filling,
    /// Nanoseconds of the whole run, and of what has been run.
    total: u64,
    used: u64,
    /// Operators that are left.
    operators: u32,
    /// Absent while it waits.
    running: Option<Running>,
}

impl<'a> Job<'a> {
    fn new(graph: GraphId, model: &'a Model, riders: Vec<(RequestId, u64)>) -> Self {
        let (filling, operators) = (Filling::default(), model.operators.get());
        Self { graph, model, riders, filling, total: 0, used: 0, operators, running: None }
    }

    /// What its next operator takes: an even part of what is left, so that the parts make up the whole.
    fn operator(&self) -> u64 {
        (self.total - self.used) / u64::from(self.operators.max(1))
    }

    fn rows(&self) -> u64 {
        self.riders.iter().fold(self.filling.rows, |sum, (_, rows)| sum.saturating_add(*rows))
    }
}

pub(super) struct Simulation<'a> {
    policy: &'a Policy,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    fair: Fair,
    trains: Trains<(GraphId, Class), RequestId>,
    times: Times,
    memory: Memory,
    free: usize,
    requests: HashMap<RequestId, Request>,
    jobs: HashMap<JobId, Job<'a>>,
    queue: Queue,
    ids: u64,
    tally: Tally,
    /// Whose turn everyone's is, where it is first come, first served.
    everyone: Arc<str>,
}

impl<'a> Simulation<'a> {
    pub fn new(policy: &'a Policy) -> Self {
        Self {
            policy,
            now: 0,
            events: BinaryHeap::new(),
            fair: Fair::new(policy.device.sharing),
            trains: Trains::new(),
            times: Times::default(),
            memory: Memory::new(&policy.device),
            free: policy.device.lanes.get(),
            requests: HashMap::new(),
            jobs: HashMap::new(),
            queue: Queue::new(policy.device.queue, policy.device.lanes.get()),
            ids: 0,
            tally: Tally::default(),
            everyone: "".into(),
        }
    }

    /// Goes on to this arrival, and takes it in.
    pub fn arrive(&mut self, arrival: Arrival) {
        while self.step(arrival.at) {}
        self.now = self.now.max(arrival.at);
        let arrival = Arrival { at: self.now, rows: arrival.rows.max(1), ..arrival };
        let Arrival { tenant, model: name, .. } = &arrival;
        self.tally.arrives(tenant, self.now);
        let share = self.policy.share(tenant);
        let id = self.id();
        let model = self.policy.model(name);
        let key = Key::of(tenant, name, model);
        // What all share is on nobody's account.
        let quota = share.memory.filter(|_| !model.policy.public);
        let mut evicted = Vec::new();
        let lease = self.memory.lease((&key, model, id), quota, self.now, &mut evicted);
        for key in evicted {
            self.tally.model(&key).evictions += 1;
        }
        let Lease { graph, load } = match lease {
            Ok(lease) => lease,
            Err(why) => return self.tally.refuses(tenant, why, self.now),
        };
        if load == Load::Begins {
            self.tally.model(&key).loads += 1;
            self.tally.tenant(tenant).loads += 1;
            self.schedule(nanos(model.load_time), Event::Loaded(graph));
        } else {
            self.tally.model(&key).hits += 1;
        }
        if let Some(deadline) = self.policy.deadline {
            self.schedule(nanos(deadline), Event::Deadline(id));
        }
        self.requests.insert(id, Request { arrival, graph, stage: Stage::Loading });
        if load == Load::Done {
            self.admit(id);
        }
    }

    /// Answers or refuses all that have come.
    pub fn finish(mut self) -> Report {
        while self.step(u64::MAX) {}
        self.tally.report(self.policy.device.lanes.get())
    }

    /// The next event that is not after `until`, if there is one.
    fn step(&mut self, until: u64) -> bool {
        // Where no lane is free, a train that may leave now is found when one is.
        let wakes = self.fair.wakes().filter(|_| self.free > 0);
        let next = self.events.peek().map(|Reverse((at, _))| *at);
        match (next, wakes) {
            (Some(at), wakes) if at <= until && wakes.is_none_or(|wakes| at <= wakes) => {
                if let Some(Reverse((at, event))) = self.events.pop() {
                    self.now = self.now.max(at);
                    self.happens(event);
                }
                true
            }
            (_, Some(at)) if at <= until => {
                self.now = self.now.max(at);
                self.dispatch(None);
                true
            }
            _ => false,
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Operator(job) => self.operator_ends(job),
            Event::Loaded(graph) => {
                for request in self.memory.loaded(graph, self.now) {
                    self.admit(request);
                }
            }
            Event::Idle(graph) => {
                if let Some(key) = self.memory.expire(graph, self.now) {
                    self.tally.model(&key).unloads += 1;
                }
            }
            Event::Patience(request) => {
                let stage = self.requests.get(&request).map(|request| request.stage);
                if matches!(stage, Some(Stage::Queued(_))) {
                    self.leave(request, Refusal::QueueTimeout);
                }
            }
            Event::Deadline(request) => self.leave(request, Refusal::DeadlineExceeded),
        }
    }

    /// A request whose graph is in memory asks for a lane.
    fn admit(&mut self, id: RequestId) {
        let Some(Request { arrival, graph, .. }) = self.requests.get(&id) else { return };
        let (graph, rows, tenant) = (*graph, arrival.rows, Arc::clone(&arrival.tenant));
        let model = self.policy.model(&arrival.model);
        let batching = &model.policy.batching;
        let rides = batching.is_on() && rows < batching.max_batch;
        let rider = self.rider(arrival);
        // A free lane is taken at once: there is no queue to be bounded.
        let waits = self.free == 0 || (rides && !batching.max_queue_delay.is_zero());
        // The rows of a model have one shape.
        let work = |rows| Work { graph, rows, shape: 0 };
        let expected = self.times.at_least(work(rows), self.now).unwrap_or(0);
        if let Some(why) = self.refusal(arrival, &rider, waits, expected) {
            return self.leave(id, why);
        }
        let new = self.id();
        let (mut job, mut turn, mut starts) = (new, (0, expected), true);
        if rides {
            let key = (graph, rider.class);
            let boarded = self.trains.board(&key, (id, rows), batching, (new, self.now));
            let expected = self.times.at_least(work(boarded.rows), self.now).unwrap_or(expected);
            (job, turn, starts) = (boarded.job, (boarded.ready, expected), boarded.starts);
        }
        if starts {
            self.fair.arrive(job, graph, &rider, turn, self.now);
            let riders = if rides { Vec::new() } else { vec![(id, rows)] };
            self.jobs.insert(job, Job::new(graph, model, riders));
        } else {
            self.fair.join(job, &rider, turn, self.now);
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.stage = Stage::Queued(job);
        }
        self.queue.enter(&tenant);
        if let Some(patience) = self.policy.queue_timeout {
            self.schedule(nanos(patience), Event::Patience(id));
        }
        self.dispatch(None);
    }

    /// As whose request it takes its turn. First come, first served is one tenant for all.
    fn rider(&self, arrival: &Arrival) -> Rider {
        let Arrival { tenant, rows, class, .. } = arrival;
        if self.policy.device.fifo {
            let (tenant, class) = (Arc::clone(&self.everyone), Class::Standard);
            return Rider { tenant, class, weight: 1, rows: *rows };
        }
        let share = self.policy.share(tenant);
        let (class, weight) = (share.class(*class), share.weight);
        Rider { tenant: Arc::clone(tenant), class, weight, rows: *rows }
    }

    fn refusal(&self, arrival: &Arrival, rider: &Rider, waits: bool, expected: u64) -> Option<Refusal> {
        let deadline = self.policy.deadline.map(|after| arrival.at.saturating_add(nanos(after)));
        let asking = Asking {
            tenant: &arrival.tenant,
            most: self.policy.share(&arrival.tenant).queue,
            rider,
            waits,
            expected,
            left: deadline.map(|deadline| deadline.saturating_sub(self.now)),
        };
        self.queue.admit(&self.fair, &asking).err().map(|refused| match refused {
            Refused::QueueFull { .. } => Refusal::QueueFull,
            Refused::TenantQueueFull { .. } => Refusal::TenantQueueFull,
            Refused::DeadlineTooSoon { .. } => Refusal::DeadlineTooSoon,
        })
    }

    /// Gives free lanes to those whose turn it is. `last` is what ran on the one that has just become free.
    fn dispatch(&mut self, last: Option<GraphId>) {
        while self.free > 0
            && let Some(running) = self.fair.next(last, self.now)
        {
            self.free -= 1;
            if !running.resumes {
                self.begin(running.job);
            }
            self.run(running);
        }
    }

    /// A job has its first lane.
    fn begin(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(departure) = self.trains.depart(id, &job.model.policy.batching) {
            job.riders = departure.riders;
            job.filling = departure.filling;
        }
        let rows = job.rows();
        job.total = nanos(job.model.run_time).saturating_add(nanos(job.model.row_time).saturating_mul(rows));
        let totals = &mut self.tally.totals;
        totals.jobs += 1;
        totals.batches += u64::from(job.riders.len() > 1);
        totals.rows = totals.rows.saturating_add(rows);
        totals.padding = totals.padding.saturating_add(job.filling.rows);
        for rider in job.riders.iter().map(|(rider, _)| *rider).collect::<Vec<_>>() {
            let Some(Request { arrival, stage, .. }) = self.requests.get_mut(&rider) else { continue };
            *stage = Stage::Begun { job: id, at: self.now };
            self.tally.begins(rider, arrival.class, &arrival.tenant, &arrival.model);
            let tenant = Arc::clone(&arrival.tenant);
            self.queue.leave(&tenant);
        }
    }

    /// A job that has a lane runs its next operator.
    fn run(&mut self, mut running: Running) {
        let Some(job) = self.jobs.get_mut(&running.job) else { return };
        running.filling = job.filling;
        let (id, took) = (running.job, job.operator());
        job.running = Some(running);
        self.schedule(took, Event::Operator(id));
    }

    fn operator_ends(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(running) = job.running.take() else { return };
        let took = job.operator();
        job.used += took;
        job.operators = job.operators.saturating_sub(1);
        let (graph, done) = (job.graph, job.operators == 0);
        let wanted = self.jobs.get(&id).is_some_and(|job| self.is_wanted(job));
        self.tally.uses(took, self.now);
        self.fair.charge(&running, took, |_| {});
        if done || !wanted {
            self.end(id, done);
            self.fair.end(running, self.now);
        } else if self.fair.yields(&running, self.now) {
            self.fair.suspend(running);
            self.tally.totals.suspensions += 1;
        } else {
            return self.run(running);
        }
        self.free += 1;
        self.dispatch(Some(graph));
    }

    /// A job that has begun is over: its riders pay, and are answered if it is done.
    fn end(&mut self, id: JobId, done: bool) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if done {
            let work = Work { graph: job.graph, rows: job.rows(), shape: 0 };
            self.times.learn(work, job.used, self.now);
        }
        let rows: Vec<u64> = job.riders.iter().map(|(_, rows)| *rows).collect();
        let parts = split(job.used, &rows, job.filling);
        for ((rider, _), part) in job.riders.into_iter().zip(parts) {
            let Some(Request { arrival, stage, .. }) = self.requests.remove(&rider) else { continue };
            let tenant = self.tally.tenant(&arrival.tenant);
            tenant.device_time = tenant.device_time.saturating_add(part);
            if let (Stage::Begun { at, .. }, true) = (stage, done) {
                let (wait, latency) = (at - arrival.at, self.now - arrival.at);
                self.tally.answers(&arrival.tenant, wait, latency, self.now);
            }
            self.release(job.graph);
        }
    }

    /// A request is refused, wherever it is.
    fn leave(&mut self, id: RequestId, why: Refusal) {
        let Some(Request { arrival, graph, stage }) = self.requests.get_mut(&id) else { return };
        let (tenant, graph) = (Arc::clone(&arrival.tenant), *graph);
        match *stage {
            Stage::Gone => return,
            Stage::Begun { job, .. } => {
                *stage = Stage::Gone;
                self.cancel(job);
            }
            Stage::Loading => {
                self.requests.remove(&id);
                self.memory.leave(graph, id);
                self.release(graph);
            }
            Stage::Queued(job) => {
                self.requests.remove(&id);
                self.queue.leave(&tenant);
                let at = self.trains.leave(job, |(rider, _)| *rider == id).unwrap_or(0);
                if self.fair.leave(job, at, self.now) {
                    self.jobs.remove(&job);
                }
                self.release(graph);
            }
        }
        self.tally.refuses(&tenant, why, self.now);
    }

    /// A job that has made way ends there if nobody wants it any more. One that runs ends with its operator.
    fn cancel(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if job.running.is_none() && !self.is_wanted(job) {
            while !self.fair.leave(id, 0, self.now) {}
            self.end(id, false);
        }
    }

    fn is_wanted(&self, job: &Job<'_>) -> bool {
        let begun = |rider| self.requests.get(rider).is_some_and(|r| matches!(r.stage, Stage::Begun { .. }));
        job.riders.iter().any(|(rider, _)| begun(rider))
    }

    fn release(&mut self, graph: GraphId) {
        if let Some(end) = self.memory.release(graph, self.now) {
            self.events.push(Reverse((end, Event::Idle(graph))));
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.events.push(Reverse((self.now.saturating_add(after), event)));
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}
