//! A device of a few lanes, whose jobs are lists of operators, that does what [`Fair`] says; and what must then be true.

use std::collections::{BTreeMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

struct Job {
    rider: Rider,
    /// Nanoseconds of each operator that is left, the last one first.
    operators: Vec<u64>,
}

/// A lane with a job on it, and when the operator that it runs ends.
struct Busy {
    running: Running,
    until: u64,
    took: u64,
}

struct Device {
    fair: Fair,
    /// Of tenants that have another than 1.
    weights: BTreeMap<usize, u32>,
    now: u64,
    jobs: BTreeMap<JobId, Job>,
    lanes: Vec<Option<Busy>>,
    last: Vec<Option<GraphId>>,
    ids: JobId,
    /// Device time by tenant and class.
    used: BTreeMap<(Class, Arc<str>), u64>,
    /// The order in which jobs ended.
    ended: Vec<JobId>,
    /// How often a job gave way.
    yielded: usize,
    most_suspended: usize,
}

fn name(tenant: usize) -> Arc<str> {
    format!("t{tenant}").into()
}

impl Device {
    fn new(lanes: usize, sharing: Sharing) -> Self {
        Self {
            fair: Fair::new(sharing),
            weights: BTreeMap::new(),
            now: 0,
            jobs: BTreeMap::new(),
            lanes: (0..lanes).map(|_| None).collect(),
            last: vec![None; lanes],
            ids: 0,
            used: BTreeMap::new(),
            ended: Vec::new(),
            yielded: 0,
            most_suspended: 0,
        }
    }

    fn submit(&mut self, tenant: usize, class: Class, graph: GraphId, operators: &[u64]) -> JobId {
        self.ids += 1;
        let weight = self.weights.get(&tenant).copied().unwrap_or(1);
        let rider = Rider { tenant: name(tenant), class, weight, rows: 1 };
        self.fair.arrive(self.ids, graph, &rider, (0, 0), self.now);
        let operators = operators.iter().rev().copied().collect();
        self.jobs.insert(self.ids, Job { rider, operators });
        self.fill();
        self.ids
    }

    /// Gives free lanes to who is next.
    fn fill(&mut self) {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].is_none() {
                let Some(running) = self.fair.next(self.last[lane], self.now) else { break };
                self.start(lane, running);
            }
        }
        let waiting = self.jobs.len() - self.lanes.iter().flatten().count();
        let free = self.lanes.iter().filter(|lane| lane.is_none()).count();
        assert!(free == 0 || waiting == 0, "{free} lanes are free while {waiting} jobs wait");
    }

    fn start(&mut self, lane: usize, running: Running) {
        let took = self.jobs[&running.job].operators.last().copied().unwrap();
        self.last[lane] = Some(running.graph);
        self.lanes[lane] = Some(Busy { running, until: self.now + took, took });
    }

    /// Goes on to the end of the operator that ends first; false if none runs.
    fn step(&mut self) -> bool {
        let first = |(index, lane): (usize, &Option<Busy>)| lane.as_ref().map(|busy| (busy.until, index));
        let Some((until, lane)) = self.lanes.iter().enumerate().filter_map(first).min() else {
            return false;
        };
        let Busy { running, took, .. } = self.lanes[lane].take().unwrap();
        self.now = until;
        self.fair.charge(&running, took, |_| {});
        let job = self.jobs.get_mut(&running.job).unwrap();
        *self.used.entry((job.rider.class, Arc::clone(&job.rider.tenant))).or_default() += took;
        job.operators.pop();
        if job.operators.is_empty() {
            self.ended.push(running.job);
            self.jobs.remove(&running.job);
            self.fair.end(running, self.now);
        } else if self.fair.yields(&running, self.now) {
            self.yielded += 1;
            self.fair.suspend(running);
        } else {
            self.start(lane, running);
        }
        self.fill();
        self.most_suspended = self.most_suspended.max(self.fair.suspended);
        true
    }

    fn used(&self, tenant: usize, class: Class) -> u64 {
        self.used.get(&(class, name(tenant))).copied().unwrap_or(0)
    }

    fn finish(&mut self) {
        while self.step() {}
        assert!(self.jobs.is_empty());
        let levels = &self.fair.levels;
        assert!(levels.iter().all(|level| level.present.is_empty() && level.waiting.is_empty()));
        assert!(self.fair.jobs.is_empty() && self.fair.suspended == 0);
    }
}

fn sharing(quantum_ms: u64) -> Sharing {
    Sharing { quantum: Duration::from_millis(quantum_ms), ..Sharing::default() }
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Critical), Just(Class::Standard), Just(Class::Batch)]
}

/// Operators of up to 10 ms.
fn operators() -> impl Strategy<Value = Vec<u64>> {
    vec(1..10 * MS, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// No lane is free while a job waits (asserted at each step), everything that came ends, and nothing is left over.
    #[test]
    fn work_is_conserved(
        lanes in 1..4usize,
        quantum in 0..50u64,
        jobs in vec((0..6usize, class(), 0..4u64, operators(), 0..6usize), 1..60),
    ) {
        let mut device = Device::new(lanes, sharing(quantum));
        let mut total = 0;
        for (tenant, class, graph, operators, steps) in &jobs {
            device.submit(*tenant, *class, *graph, operators);
            total += operators.iter().sum::<u64>();
            for _ in 0..*steps {
                device.step();
            }
        }
        device.finish();
        prop_assert_eq!(device.ended.len(), jobs.len());
        prop_assert_eq!(device.used.values().sum::<u64>(), total);
    }

    /// Tenants that always have jobs waiting get device time by their weights, within a quantum and one operator of each.
    #[test]
    fn shares_follow_weights(
        quantum in 0..40u64,
        tenants in vec((1..8u32, operators(), 0..3u64), 2..6),
        steps in 50..600usize,
    ) {
        let mut device = Device::new(1, sharing(quantum));
        for (tenant, (weight, operators, graph)) in tenants.iter().enumerate() {
            device.weights.insert(tenant, *weight);
            for _ in 0..=steps {
                device.submit(tenant, Class::Standard, *graph, operators);
            }
        }
        for _ in 0..steps {
            device.step();
            let slack = |tenant: usize| {
                let (weight, operators, _) = &tenants[tenant];
                (quantum * MS + operators.iter().max().unwrap()) / u64::from(*weight)
            };
            let virtual_time = |tenant: usize| device.used(tenant, Class::Standard) / u64::from(tenants[tenant].0);
            for one in 0..tenants.len() {
                for other in 0..tenants.len() {
                    let (ahead, behind) = (virtual_time(one), virtual_time(other));
                    let most = behind + slack(one) + slack(other) + 2;
                    prop_assert!(ahead <= most, "t{one} is at {ahead}, t{other} at {behind}");
                }
            }
        }
    }

    /// Whatever the others do, a tenant with a job is served before the others have had more than a quantum and an
    /// operator each.
    #[test]
    fn nobody_starves(
        quantum in 0..40u64,
        lanes in 1..3usize,
        floods in vec(operators(), 1..8),
        late in 0..100usize,
    ) {
        let mut device = Device::new(lanes, sharing(quantum));
        for (tenant, operators) in floods.iter().enumerate() {
            for _ in 0..200 {
                device.submit(tenant, Class::Standard, 0, operators);
            }
        }
        for _ in 0..late {
            device.step();
        }
        let have_settled = (0..floods.len()).all(|tenant| device.used(tenant, Class::Standard) > quantum * MS);
        let (came, mine) = (device.now, 10 * MS);
        let job = device.submit(99, Class::Standard, 1, &[mine]);
        while !device.ended.contains(&job) {
            prop_assert!(device.step());
        }
        // It came where the others are. Whoever runs gives way to it at the next operator; those who have just come too
        // may have their quantum first.
        let others = if have_settled { 10 * MS } else { floods.len() as u64 * (quantum + 10) * MS };
        prop_assert!(device.now <= came + mine + others, "{} ns", device.now - came);
    }

    /// On one lane, no operator of a later class begins while a job of an earlier one waits, except for what the later
    /// class is owed; and it gets that.
    #[test]
    fn classes_go_in_order_but_for_their_minimum(
        standard in 0..300u16,
        batch in 0..300u16,
        operators in vec(operators(), 3),
    ) {
        let shares = Sharing { standard_share: standard, batch_share: batch, ..sharing(20) };
        let mut device = Device::new(1, shares);
        for (class, operators) in CLASSES.into_iter().zip(&operators) {
            for _ in 0..2000 {
                device.submit(0, class, 0, operators);
            }
        }
        for _ in 0..1000 {
            device.step();
        }
        let longest = operators.iter().flatten().max().unwrap();
        for (class, share) in [(Class::Standard, standard), (Class::Batch, batch)] {
            let (mine, due) = (device.used(0, class), device.now * u64::from(share) / 1000);
            // Each of two later classes may stand in the other's way for an operator.
            prop_assert!(mine.abs_diff(due) <= 3 * longest, "{class:?} has {mine} of {}, due {due}", device.now);
        }
    }

    /// The graph that ran last is preferred, but a tenant never falls further behind for it than the bound.
    #[test]
    fn stickiness_is_bounded(quantum in 1..60u64, length in 1..10u64) {
        let mut device = Device::new(1, sharing(quantum));
        for _ in 0..400 {
            device.submit(0, Class::Standard, 7, &[length * MS]);
            device.submit(1, Class::Standard, 7, &[length * MS]);
            device.submit(2, Class::Standard, 8, &[length * MS]);
        }
        let mut switches = 0;
        let mut last = None;
        for _ in 0..600 {
            device.step();
            switches += usize::from(last != device.last[0]);
            last = device.last[0];
            let mine = device.used(2, Class::Standard);
            let others = device.used(0, Class::Standard).max(device.used(1, Class::Standard));
            prop_assert!(others <= mine + (quantum + 2 * length) * MS, "{others} against {mine}");
        }
        // Without it the graph would change twice in three jobs.
        if quantum >= 4 * length {
            prop_assert!(switches <= 300, "{switches}");
        }
    }

    /// No more jobs than allowed have begun and wait.
    #[test]
    fn suspended_jobs_are_bounded(
        most in 0..4usize,
        jobs in vec((0..12usize, class(), operators(), 0..4usize), 1..80),
    ) {
        let mut device = Device::new(2, Sharing { suspended: most, ..sharing(0) });
        for (tenant, class, operators, steps) in &jobs {
            device.submit(*tenant, *class, 0, operators);
            for _ in 0..*steps {
                device.step();
            }
        }
        device.finish();
        prop_assert!(device.most_suspended <= most, "{}", device.most_suspended);
        prop_assert!(most > 0 || device.yielded == 0);
    }
}

#[test]
fn a_short_job_of_a_quiet_tenant_is_done_in_one_go() {
    let mut device = Device::new(1, sharing(20));
    for _ in 0..50 {
        device.submit(0, Class::Standard, 0, &[5 * MS; 25]);
    }
    for _ in 0..100 {
        device.step();
    }
    let came = device.now;
    let job = device.submit(1, Class::Standard, 1, &[MS; 11]);
    while !device.ended.contains(&job) {
        device.step();
    }
    assert!(device.now <= came + 5 * MS + 11 * MS, "{}", device.now - came);
}

#[test]
fn a_tenant_that_slept_has_no_hoard() {
    let mut device = Device::new(1, sharing(0));
    device.submit(1, Class::Standard, 0, &[MS]);
    device.finish();
    for _ in 0..2000 {
        device.submit(0, Class::Standard, 0, &[MS]);
    }
    for _ in 0..1000 {
        device.step();
    }
    for _ in 0..100 {
        device.submit(1, Class::Standard, 0, &[MS]);
    }
    let before = device.used(0, Class::Standard);
    for _ in 0..100 {
        device.step();
    }
    let other = (device.used(0, Class::Standard) - before) / MS;
    assert!((49..=51).contains(&other), "{other} of 100");
}

#[test]
fn a_debt_halves_while_its_tenant_is_away() {
    let debt_after = |idle_ms: u64| {
        let mut device = Device::new(1, Sharing { half_life: Duration::from_secs(1), ..sharing(0) });
        // Both are there, so that one long operator is a debt.
        device.submit(0, Class::Standard, 0, &[800 * MS]);
        device.submit(1, Class::Standard, 0, &[MS; 10]);
        device.step();
        device.now += idle_ms * MS;
        device.submit(0, Class::Standard, 0, &[MS]);
        let clock = device.fair.level(Class::Standard).clock;
        let flow = device.fair.names[&(Class::Standard, name(0))];
        u64::try_from((device.fair.flows[&flow].used - clock) / SCALE).unwrap() / MS
    };
    assert_eq!(debt_after(0), 800);
    assert_eq!(debt_after(1000), 400);
    assert_eq!(debt_after(3000), 100);
    assert_eq!(debt_after(1_000_000), 0);
}

#[test]
fn what_a_class_has_unasked_is_not_held_against_it_later() {
    let mut device = Device::new(1, sharing(20));
    for _ in 0..100 {
        device.submit(0, Class::Batch, 0, &[MS]);
    }
    for _ in 0..50 {
        device.step();
    }
    assert_eq!(device.fair.level(Class::Batch).owed, 0);
}

#[test]
fn a_rider_takes_its_job_to_its_own_turn_and_leaves_it_there() {
    let mut fair = Fair::new(sharing(0));
    let rider = |tenant, class| Rider { tenant: name(tenant), class, weight: 1, rows: 1 };
    fair.arrive(1, 0, &rider(0, Class::Standard), (0, 0), 0);
    fair.arrive(2, 1, &rider(1, Class::Batch), (0, 0), 0);
    fair.join(2, &rider(2, Class::Critical), (0, 0), 0);
    let first = fair.next(None, 0).unwrap();
    assert_eq!((first.job, first.class), (2, Class::Critical));
    fair.charge(&first, 10, |_| {});
    let used = |fair: &Fair, class, tenant| fair.flows[&fair.names[&(class, name(tenant))]].used / SCALE;
    assert_eq!(used(&fair, Class::Batch, 1), 5);
    assert_eq!(used(&fair, Class::Critical, 2), 5);
    fair.suspend(first);
    assert!(!fair.leave(2, 1, 0), "one rider is left");
    assert_eq!(fair.next(None, 0).unwrap().job, 1, "and it is of the batch class");
    assert!(fair.leave(2, 0, 0), "with the last one the job goes");
    assert_eq!(fair.suspended, 0);
    assert!(fair.next(None, 0).is_none());
}

#[test]
fn zeros_are_charged_to_those_who_caused_them() {
    let mut fair = Fair::new(sharing(0));
    let rider = |tenant| Rider { tenant: name(tenant), class: Class::Standard, weight: 1, rows: 1 };
    fair.arrive(1, 0, &rider(0), (0, 0), 0);
    fair.join(1, &rider(1), (0, 0), 0);
    let mut running = fair.next(None, 0).unwrap();
    running.filling = Filling { rows: 2, caused_from: 1 };
    fair.charge(&running, 400, |_| {});
    fair.suspend(running);
    let running = fair.next(None, 0).unwrap();
    fair.charge(&running, 400, |_| {});
    assert_eq!(fair.device_time(), [(name(0), 200), (name(1), 600)].into());
    fair.end(running, 0);
}

#[test]
fn a_job_that_is_not_ready_waits_for_its_moment_or_for_a_rider() {
    let mut fair = Fair::new(sharing(0));
    let rider = Rider { tenant: name(0), class: Class::Standard, weight: 1, rows: 1 };
    fair.arrive(1, 0, &rider, (100, 0), 0);
    fair.arrive(2, 0, &rider, (200, 0), 0);
    assert!(fair.next(None, 99).is_none());
    assert_eq!(fair.wakes(), Some(100));
    assert_eq!(fair.next(None, 100).unwrap().job, 1);
    fair.join(2, &rider, (0, 0), 100);
    assert_eq!(fair.next(None, 100).unwrap().job, 2);
}

#[test]
fn tenants_that_have_gone_are_forgotten() {
    let mut device = Device::new(1, sharing(20));
    device.submit(0, Class::Batch, 0, &[MS]);
    device.step();
    device.submit(0, Class::Standard, 0, &[MS; 10_000]);
    for tenant in 1..10_000 {
        device.submit(tenant, Class::Standard, 0, &[MS]);
        while device.jobs.len() > 1 {
            device.step();
        }
        assert!(device.fair.flows.len() <= KEPT + 4 && device.fair.names.len() == device.fair.flows.len());
    }
    let unique: HashSet<_> = device.ended.iter().collect();
    assert_eq!(unique.len(), 10_000);
    let times = device.fair.device_time();
    assert!(times.len() <= KEPT);
    let of_the_first = device.used(0, Class::Standard) + device.used(0, Class::Batch);
    assert_eq!(times[&name(0)], of_the_first, "of who is there nothing is forgotten");
}

#[test]
fn a_weight_is_that_of_the_last_request() {
    let mut device = Device::new(1, sharing(0));
    for turn in 0..400 {
        device.weights.insert(1, if turn < 200 { 1 } else { 3 });
        device.submit(0, Class::Standard, 0, &[MS]);
        device.submit(1, Class::Standard, 0, &[MS]);
    }
    for _ in 0..400 {
        device.step();
    }
    assert!(device.used(1, Class::Standard).abs_diff(300 * MS) <= 2 * MS);
}
