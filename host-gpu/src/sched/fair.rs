//! Who is next on a device. Pure: no clock, no threads; times come in, in nanoseconds since any moment.
//!
//! Jobs are of three classes, and a job of an earlier class goes first, except that the later classes have a minimum
//! share: what a class was kept from having is owed to it, and a class that is owed goes before all others. Within a
//! class it is weighted start-time fair queueing by tenant, on the device time that each was seen to use: every tenant has
//! a virtual time, which is its device time by its weight, and the tenant that is furthest behind goes first. A tenant
//! that comes back after a while starts where those who are there have come to: it has saved nothing. What it was ahead
//! of them when it left halves with time.
//!
//! A job that runs yields at its next operator when another tenant's job is better, and two things keep it from doing
//! that all the time: a tenant may get ahead by a quantum, and one that has just come is let in at the next operator, unless
//! who runs has just come too and has not had its quantum. So a short job of a tenant that asks for little is done in one go, whatever the others have waiting. Within
//! the same bound the graph that ran last is preferred, because its weights are near.
//!
//! For any two tenants of a class that have jobs waiting, device time by weight differs by no more than a quantum and
//! one operator of each. Source: Goyal, Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::error::nanos;
use crate::sched::Class;
use crate::sched::batch::{Filling, split};

/// A job that waits or runs.
pub(crate) type JobId = u64;
/// What a job runs.
pub(crate) type GraphId = u64;

/// Virtual nanoseconds of one nanosecond at weight 1. More than the largest weight, so that rounding is fair.
const SCALE: u128 = 1 << 20;

/// Shares are in thousandths.
const WHOLE: i128 = 1000;

/// Waiting jobs that are looked at for one whose graph is near.
const NEAR: usize = 32;

/// Tenants that are not there any more are remembered for so many half-lives, if they went with a debt.
const REMEMBERED: u64 = 16;

/// Flows that have gone and owe nothing may be remembered up to so many, beside as many as are there or owe something.
const KEPT: usize = 4096;

/// How a device is shared. Set by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// How much more device time than its share a tenant may have had before a job of it yields.
    pub quantum: Duration,
    /// In this time the debt of a tenant that asks for nothing halves.
    pub half_life: Duration,
    /// Thousandths of the device's time that standard jobs get, if they want it, whatever the critical ones want.
    pub standard_share: u16,
    /// Thousandths of the device's time that batch jobs get, if they want it, whatever the others want.
    pub batch_share: u16,
    /// The most jobs that may have begun and wait to go on. Each holds a thread and its memory.
    pub suspended: usize,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            quantum: Duration::from_millis(20),
            half_life: Duration::from_secs(10),
            standard_share: 100,
            batch_share: 50,
            suspended: 64,
        }
    }
}

/// One request of a job. A job has several when they ride together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rider {
    pub tenant: Arc<str>,
    pub class: Class,
    /// Shares of its tenant. What that has used already was by its weight before.
    pub weight: u32,
    pub rows: u64,
}

/// A job that has a lane. It is given back by [`Fair::suspend`] or [`Fair::end`].
#[derive(Debug)]
pub(crate) struct Running {
    pub job: JobId,
    pub graph: GraphId,
    /// Whether it goes on where it was suspended.
    pub resumes: bool,
    /// Rows of zeros that were added to those of its requests, none before it is set.
    pub filling: Filling,
    class: Class,
    riders: Vec<(FlowId, u64)>,
}

type FlowId = u64;

/// A tenant's jobs of one class.
#[derive(Debug)]
struct Flow {
    key: (Class, Arc<str>),
    weight: u32,
    /// Device time by weight.
    used: u128,
    /// Nanoseconds of device time.
    total: u64,
    /// What that was when it came.
    came: u128,
    /// Whether it has had a lane since it came.
    served: bool,
    /// Requests that wait or run.
    present: usize,
    /// When it last had none.
    left: u64,
    /// Jobs that have begun, then those that have not.
    suspended: VecDeque<JobId>,
    fresh: VecDeque<JobId>,
}

#[derive(Debug)]
struct Waiting {
    graph: GraphId,
    /// Whose turn it takes: that of the rider who is best placed.
    home: FlowId,
    riders: Vec<(FlowId, u64)>,
    filling: Filling,
    begun: bool,
    /// Not before; it is in no flow's queue until then.
    ready: u64,
    /// Device time that it is thought to take.
    expected: u64,
}

/// Flows in the order of their turns.
type Order = BTreeSet<(u128, bool, FlowId)>;

/// What is known of one class.
#[derive(Debug, Default)]
struct Level {
    /// Where those who are there have come to: the virtual time that a newcomer starts at.
    clock: u128,
    /// Flows with requests that wait or run.
    present: Order,
    /// Those of them with jobs that may have a lane.
    waiting: Order,
    /// Thousandths of nanoseconds that the class was kept from having.
    owed: i128,
    share: i128,
}

/// The jobs of one device.
#[derive(Debug)]
pub(crate) struct Fair {
    sharing: Sharing,
    levels: [Level; 3],
    names: HashMap<(Class, Arc<str>), FlowId>,
    flows: HashMap<FlowId, Flow>,
    jobs: HashMap<JobId, Waiting>,
    /// Jobs that are not ready, by when they are.
    later: BTreeSet<(u64, JobId)>,
    suspended: usize,
    /// As many flows as it takes for some to be forgotten.
    most: usize,
    ids: u64,
}

const CLASSES: [Class; 3] = [Class::Critical, Class::Standard, Class::Batch];

impl Flow {
    fn place(&self, id: FlowId) -> (u128, bool, FlowId) {
        (self.used, self.served, id)
    }

    fn waits(&self) -> bool {
        !self.suspended.is_empty() || !self.fresh.is_empty()
    }

    fn head(&self) -> Option<JobId> {
        self.suspended.front().or_else(|| self.fresh.front()).copied()
    }
}

impl Fair {
    pub fn new(sharing: Sharing) -> Self {
        let level = |share: u16| Level { share: share.into(), ..Level::default() };
        Self {
            sharing,
            levels: [level(0), level(sharing.standard_share), level(sharing.batch_share)],
            names: HashMap::new(),
            flows: HashMap::new(),
            jobs: HashMap::new(),
            later: BTreeSet::new(),
            suspended: 0,
            most: KEPT,
            ids: 0,
        }
    }

    /// A job waits, with one request so far. It may have a lane from `ready` on; `expected` is the device time that it is
    /// thought to take.
    pub fn arrive(
        &mut self,
        job: JobId,
        graph: GraphId,
        rider: &Rider,
        (ready, expected): (u64, u64),
        now: u64,
    ) {
        let home = self.enter(rider, now);
        let riders = vec![(home, rider.rows)];
        let filling = Filling::default();
        self.jobs.insert(job, Waiting { graph, home, riders, filling, begun: false, ready, expected });
        if ready > now {
            self.later.insert((ready, job));
        } else {
            self.line_up(job);
        }
    }

    /// Another request rides with a job that waits and has not begun, if there is that job. It takes the turn of whoever
    /// is best placed.
    pub fn join(&mut self, job: JobId, rider: &Rider, (ready, expected): (u64, u64), now: u64) -> bool {
        if !self.jobs.contains_key(&job) {
            return false;
        }
        let flow = self.enter(rider, now);
        let lined_up = self.stand_aside(job);
        if let Some(waiting) = self.jobs.get_mut(&job) {
            waiting.riders.push((flow, rider.rows));
            waiting.ready = waiting.ready.min(ready);
            waiting.expected = expected;
        }
        self.settle(job, lined_up, now);
        true
    }

    /// A request leaves a job that waits; whether the job has gone with it. `rider` is how many riders came before it.
    pub fn leave(&mut self, job: JobId, rider: usize, now: u64) -> bool {
        let lined_up = self.stand_aside(job);
        let Some(waiting) = self.jobs.get_mut(&job) else { return true };
        if rider < waiting.riders.len() {
            let (flow, _) = waiting.riders.remove(rider);
            self.exit(flow, now);
        }
        let Some(waiting) = self.jobs.get(&job) else { return true };
        if waiting.riders.is_empty() {
            self.suspended -= usize::from(waiting.begun);
            self.jobs.remove(&job);
            return true;
        }
        self.settle(job, lined_up, now);
        false
    }

    /// Takes the job whose turn it is. `last` is what the lane ran before.
    pub fn next(&mut self, last: Option<GraphId>, now: u64) -> Option<Running> {
        self.wake(now);
        let fresh = self.suspended <= self.sharing.suspended;
        let class = self.class(None, fresh)?;
        let flow = if fresh { self.first(class, last)? } else { self.best(class, fresh)? };
        let job = self.flows.get(&flow)?.head()?;
        self.stand_aside(job);
        let Waiting { graph, riders, filling, begun, .. } = self.jobs.remove(&job)?;
        self.suspended -= usize::from(begun);
        for (rider, _) in &riders {
            self.place(*rider, |flow| flow.served = true);
        }
        Some(Running { job, graph, resumes: begun, filling, class, riders })
    }

    /// A running job has used `nanos` of a lane: they are split among its requests, and each part is `billed`, in the order of
    /// the requests.
    pub fn charge(&mut self, running: &Running, nanos: u64, mut billed: impl FnMut(u64)) {
        let mut uses = |flow: FlowId, part: u64| {
            billed(part);
            self.place(flow, |flow| {
                flow.used += (u128::from(part) * SCALE).div_ceil(flow.weight.into());
                flow.total = flow.total.saturating_add(part);
            });
        };
        if let [(flow, _)] = &*running.riders {
            uses(*flow, nanos);
        } else {
            let rows: Vec<u64> = running.riders.iter().map(|(_, rows)| *rows).collect();
            for ((flow, _), part) in running.riders.iter().zip(split(nanos, &rows, running.filling)) {
                uses(*flow, part);
            }
        }
        let nanos = i128::from(nanos);
        let waits = CLASSES.map(|class| !self.level(class).waiting.is_empty());
        for (level, class) in self.levels.iter_mut().zip(CLASSES) {
            if let Some((first, ..)) = level.present.first() {
                level.clock = level.clock.max(*first);
            }
            let others = waits.iter().zip(CLASSES).any(|(waits, other)| *waits && other != class);
            if class == running.class {
                // What it has while nobody else wants it pays what it is owed, but saves nothing.
                let least = if others { i128::MIN } else { level.owed.min(0) };
                level.owed = (level.owed - nanos * (WHOLE - level.share)).max(least);
            } else if !level.waiting.is_empty() {
                level.owed += nanos * level.share;
            }
        }
    }

    /// Whether a running job is to make way at this operator.
    pub fn yields(&mut self, running: &Running, now: u64) -> bool {
        self.wake(now);
        let fresh = self.suspended < self.sharing.suspended;
        let Some(class) = self.class(Some(running.class), fresh) else { return false };
        if class != running.class {
            return true;
        }
        let Some(first) = self.best(class, fresh).and_then(|id| self.flows.get(&id)) else { return false };
        let riders = running.riders.iter().filter_map(|(flow, _)| self.flows.get(flow));
        let Some(mine) = riders.min_by_key(|flow| flow.used) else { return false };
        if first.key == mine.key {
            return false;
        }
        let quantum = self.quantum(mine.weight);
        let just_came = mine.used <= mine.came.saturating_add(quantum);
        let lead = if first.served || just_came { quantum } else { 0 };
        mine.used > first.used.saturating_add(lead)
    }

    /// A running job that makes way waits to go on.
    pub fn suspend(&mut self, running: Running) {
        let Running { job, graph, riders, filling, .. } = running;
        let Some((home, _)) = riders.first().copied() else { return };
        let waiting = Waiting { graph, home, riders, filling, begun: true, ready: 0, expected: 0 };
        self.jobs.insert(job, waiting);
        self.suspended += 1;
        self.settle(job, true, 0);
    }

    /// A running job is done.
    pub fn end(&mut self, running: Running, now: u64) {
        for (flow, _) in running.riders {
            self.exit(flow, now);
        }
    }

    /// When a job that is not ready will be, if there is one.
    pub fn wakes(&self) -> Option<u64> {
        self.later.first().map(|(ready, _)| *ready)
    }

    /// Device time that a tenant's waiting jobs of a class are thought to take.
    pub fn expected(&self, class: Class, tenant: &Arc<str>) -> u64 {
        let flow = self.names.get(&(class, Arc::clone(tenant))).and_then(|id| self.flows.get(id));
        let jobs = flow.into_iter().flat_map(|flow| flow.suspended.iter().chain(&flow.fresh));
        let expected = jobs.filter_map(|job| self.jobs.get(job)).map(|waiting| waiting.expected);
        expected.fold(0, u64::saturating_add)
    }

    /// Nanoseconds of device time that each tenant has had, by tenant. It is forgotten with the tenant.
    pub fn device_time(&self) -> BTreeMap<Arc<str>, u64> {
        let mut times = BTreeMap::new();
        for flow in self.flows.values() {
            *times.entry(Arc::clone(&flow.key.1)).or_default() += flow.total;
        }
        times
    }

    /// A request is there: its flow starts no earlier than where the others of its class have come to.
    fn enter(&mut self, rider: &Rider, now: u64) -> FlowId {
        let key = (rider.class, Arc::clone(&rider.tenant));
        let id = match self.names.get(&key) {
            Some(id) => *id,
            None => self.make(key),
        };
        let clock = self.level(rider.class).clock;
        let half_life = self.sharing.half_life;
        self.place(id, |flow| {
            flow.weight = rider.weight.max(1);
            if flow.present == 0 {
                let debt = halved(flow.used.saturating_sub(clock), now.saturating_sub(flow.left), half_life);
                flow.used = clock.saturating_add(debt);
                flow.served = false;
                flow.came = flow.used;
            }
            flow.present += 1;
        });
        id
    }

    fn make(&mut self, key: (Class, Arc<str>)) -> FlowId {
        self.ids += 1;
        self.names.insert(key.clone(), self.ids);
        let flow = Flow {
            key,
            weight: 1,
            used: 0,
            came: 0,
            total: 0,
            served: false,
            present: 0,
            left: 0,
            suspended: VecDeque::new(),
            fresh: VecDeque::new(),
        };
        self.flows.insert(self.ids, flow);
        self.ids
    }

    fn exit(&mut self, id: FlowId, now: u64) {
        self.place(id, |flow| {
            flow.present = flow.present.saturating_sub(1);
            flow.left = now;
        });
        let Some(flow) = self.flows.get(&id).filter(|flow| flow.present == 0) else { return };
        let level = self.level_mut(flow.key.0);
        if level.present.is_empty() {
            level.owed = 0;
        }
        self.forget(now);
    }

    /// Drops tenants that have gone and owe nothing worth remembering, with all their flows: device time never falls but to
    /// nothing.
    fn forget(&mut self, now: u64) {
        if self.flows.len() < self.most {
            return;
        }
        let long = nanos(self.sharing.half_life).saturating_mul(REMEMBERED);
        let clocks = CLASSES.map(|class| (class, self.level(class).clock));
        let debt = |flow: &Flow| {
            let clock = clocks.iter().find(|(class, _)| *class == flow.key.0).map_or(0, |(_, clock)| *clock);
            flow.used > clock && now.saturating_sub(flow.left) < long
        };
        let stay = self.flows.values().filter(|flow| flow.present > 0 || debt(flow));
        let stay: HashSet<Arc<str>> = stay.map(|flow| Arc::clone(&flow.key.1)).collect();
        self.flows.retain(|_, flow| stay.contains(&flow.key.1));
        self.names.retain(|_, id| self.flows.contains_key(id));
        self.most = 2 * self.flows.len() + KEPT;
    }

    /// Puts a job where its turn is decided.
    fn settle(&mut self, job: JobId, lined_up: bool, now: u64) {
        let Some(waiting) = self.jobs.get(&job) else { return };
        let place = |(id, _): &(FlowId, u64)| {
            self.flows.get(id).map(|flow| (flow.key.0, flow.used, flow.served, *id))
        };
        let best = waiting.riders.iter().filter_map(place).min().map(|(.., id)| id);
        let is_ready = lined_up || waiting.ready <= now;
        let ready = waiting.ready;
        if let (Some(best), Some(waiting)) = (best, self.jobs.get_mut(&job)) {
            waiting.home = best;
        }
        if is_ready {
            self.line_up(job);
        } else {
            self.later.insert((ready, job));
        }
    }

    /// Puts a job into the queue of its flow.
    fn line_up(&mut self, job: JobId) {
        let Some(waiting) = self.jobs.get(&job) else { return };
        let (home, begun) = (waiting.home, waiting.begun);
        self.place(home, |flow| {
            let queue = if begun { &mut flow.suspended } else { &mut flow.fresh };
            // By arrival, as jobs are numbered, also when it has changed flows since.
            let at = queue.partition_point(|other| *other < job);
            queue.insert(at, job);
        });
    }

    /// Takes a job out of its queue; whether it was in one of those that may have a lane.
    fn stand_aside(&mut self, job: JobId) -> bool {
        let Some(waiting) = self.jobs.get(&job) else { return false };
        if self.later.remove(&(waiting.ready, job)) {
            return false;
        }
        let home = waiting.home;
        self.place(home, |flow| {
            for queue in [&mut flow.suspended, &mut flow.fresh] {
                queue.retain(|other| *other != job);
            }
        });
        true
    }

    /// Lines up what has become ready.
    fn wake(&mut self, now: u64) {
        while let Some((ready, job)) = self.later.first().copied()
            && ready <= now
        {
            self.later.remove(&(ready, job));
            self.line_up(job);
        }
    }

    /// Changes a flow, and its place with it.
    fn place(&mut self, id: FlowId, change: impl FnOnce(&mut Flow)) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let before = flow.place(id);
        change(flow);
        let (after, present, waits) = (flow.place(id), flow.present > 0, flow.waits());
        let class = flow.key.0;
        let level = self.level_mut(class);
        level.present.remove(&before);
        level.waiting.remove(&before);
        if present {
            level.present.insert(after);
        }
        if waits {
            level.waiting.insert(after);
        }
    }

    /// The class whose turn it is: of those with jobs that may have a lane, and that of a job which runs.
    fn class(&self, running: Option<Class>, fresh: bool) -> Option<Class> {
        let wants = |class: &Class| running == Some(*class) || self.best(*class, fresh).is_some();
        let owed = CLASSES.into_iter().find(|class| self.level(*class).owed > 0 && wants(class));
        owed.or_else(|| CLASSES.into_iter().find(wants))
    }

    /// The flow that is furthest behind; without `fresh` of those with a job that has begun.
    fn best(&self, class: Class, fresh: bool) -> Option<FlowId> {
        let begun = |id: &FlowId| self.flows.get(id).is_some_and(|flow| !flow.suspended.is_empty());
        self.level(class).waiting.iter().map(|(.., id)| *id).find(|id| fresh || begun(id))
    }

    /// The flow whose turn it is: the one furthest behind, or one near it whose job runs what ran last.
    fn first(&self, class: Class, last: Option<GraphId>) -> Option<FlowId> {
        let waiting = &self.level(class).waiting;
        let (least, served, first) = *waiting.first()?;
        let Some(last) = last.filter(|_| served) else { return Some(first) };
        let near = waiting.iter().take(NEAR).find(|(used, _, id)| {
            let flow = self.flows.get(id);
            let graph = flow.and_then(Flow::head).and_then(|job| self.jobs.get(&job)).map(|job| job.graph);
            let bound = flow.map_or(0, |flow| self.quantum(flow.weight));
            graph == Some(last) && *used <= least.saturating_add(bound)
        });
        Some(near.map_or(first, |(.., id)| *id))
    }

    /// The quantum in virtual time.
    fn quantum(&self, weight: u32) -> u128 {
        self.sharing.quantum.as_nanos().saturating_mul(SCALE) / u128::from(weight)
    }

    fn level(&self, class: Class) -> &Level {
        let [critical, standard, batch] = &self.levels;
        match class {
            Class::Critical => critical,
            Class::Standard => standard,
            Class::Batch => batch,
        }
    }

    fn level_mut(&mut self, class: Class) -> &mut Level {
        let [critical, standard, batch] = &mut self.levels;
        match class {
            Class::Critical => critical,
            Class::Standard => standard,
            Class::Batch => batch,
        }
    }
}

/// What is left of a debt after `idle` nanoseconds: half of it after each half-life, evenly in between.
fn halved(debt: u128, idle: u64, half_life: Duration) -> u128 {
    let half_life = nanos(half_life).max(1);
    let whole = u32::try_from(idle / half_life).unwrap_or(u32::MAX);
    let debt = debt.checked_shr(whole).unwrap_or(0);
    let rest = u128::from(idle % half_life);
    debt - debt.saturating_mul(rest) / u128::from(half_life) / 2
}

#[cfg(test)]
mod tests;
