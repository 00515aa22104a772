use proptest::collection::vec;
use proptest::prelude::*;

use super::trace::{Flood, Load, generate};
use super::*;
use crate::{Batching, Keep};

const MS: u64 = 1_000_000;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lanes(lanes: usize) -> NonZeroUsize {
    NonZeroUsize::new(lanes).unwrap()
}

/// A model whose runs take so long whatever their rows, in so many operators.
fn model(operators: u32, run_time: Duration) -> Model {
    let operators = NonZeroU32::new(operators).unwrap();
    Model { operators, run_time, row_time: Duration::ZERO, ..Model::default() }
}

fn arrival(at: u64, tenant: &str, model: &str) -> Arrival {
    Arrival { at, tenant: tenant.into(), model: model.into(), rows: 1, class: Class::Standard }
}

fn of<'a>(report: &'a Report, tenant: &str) -> &'a TenantReport {
    report.tenants.iter().find(|found| found.tenant == tenant).unwrap()
}

/// Ten tenants that use a quarter of the device, and perhaps one that asks for more than there is.
fn neighbours(flooded: bool, fifo: bool) -> Report {
    let flood = Flood { tenant: "flood".into(), model: "large".into(), rate: 80.0 };
    let load = Load {
        functions: 1,
        duration: Duration::from_secs(120),
        rate: 50.0,
        flood: flooded.then_some(flood),
        ..Load::default()
    };
    let policy = Policy {
        device: Device { fifo, ..Device::default() },
        model: model(10, millis(5)),
        models: BTreeMap::from([("large".to_owned(), model(25, millis(25)))]),
        ..Policy::default()
    };
    let calls = generate(&load, 3).enumerate().map(|(n, call)| {
        let tenant = if *call.tenant == *"flood" { call.tenant } else { format!("t{}", n % 10).into() };
        Arrival { tenant, ..call }
    });
    simulate(&policy, calls)
}

#[test]
fn a_flood_costs_the_others_two_quanta_and_first_come_first_served_its_whole_queue() {
    let (alone, flooded, fifo) = (neighbours(false, false), neighbours(true, false), neighbours(true, true));
    for alone in &alone.tenants {
        let (flooded, fifo) = (of(&flooded, &alone.tenant), of(&fifo, &alone.tenant));
        assert_eq!(flooded.refused, BTreeMap::new());
        // The quantum is 20 ms.
        assert!(flooded.latency.p99 <= alone.latency.p99 + 40 * MS, "{alone:?} {flooded:?}");
        assert!(fifo.latency.p99 > alone.latency.p99 + 5000 * MS, "{alone:?} {fifo:?}");
    }
    // What the others leave is the flood's, and what it asks for beyond that is refused to it alone.
    assert!(flooded.totals.utilisation > 990);
    assert!(of(&flooded, "flood").refused[&Refusal::TenantQueueFull] > 0);
}

#[test]
fn shares_follow_weights_within_a_quantum() {
    let weights = [("a", 1), ("b", 2), ("c", 4)];
    let share = |weight| TenantShare { weight, queue: usize::MAX, ..TenantShare::default() };
    let policy = Policy {
        device: Device { queue: usize::MAX, ..Device::default() },
        tenants: weights.map(|(tenant, weight)| (tenant.to_owned(), share(weight))).into(),
        model: model(25, millis(50)),
        // All of them have jobs waiting when it ends.
        deadline: Some(millis(7000)),
        ..Policy::default()
    };
    let arrivals = (0..200).flat_map(|_| weights.map(|(tenant, _)| arrival(0, tenant, "model")));
    let report = simulate(&policy, arrivals);
    let slack = u64::try_from(policy.device.sharing.quantum.as_nanos()).unwrap() + 2 * MS;
    for (tenant, weight) in weights {
        let due = 1000 * MS * u64::from(weight);
        let used = of(&report, tenant).device_time;
        assert!(used.abs_diff(due) <= slack, "{tenant} has {used}, due {due}");
    }
    assert!(report.totals.suspensions > 0);
}

#[test]
fn classes_are_capped_and_go_in_order() {
    let cap = TenantShare { class: Class::Batch, ..TenantShare::default() };
    // A class that is owed its minimum would go first.
    let sharing = Sharing { standard_share: 0, batch_share: 0, ..Sharing::default() };
    let policy = Policy {
        device: Device { sharing, ..Device::default() },
        tenants: BTreeMap::from([("capped".to_owned(), cap)]),
        model: model(1, millis(10)),
        ..Policy::default()
    };
    let urgent = |tenant| Arrival { class: Class::Critical, ..arrival(0, tenant, "model") };
    let report =
        simulate(&policy, [arrival(0, "first", "model"), urgent("capped"), urgent("other")].into_iter());
    assert_eq!(of(&report, "first").wait.max, 0);
    assert_eq!(of(&report, "other").wait.max, 10 * MS);
    assert_eq!(of(&report, "capped").wait.max, 20 * MS);
}

#[test]
fn queues_are_bounded_and_patience_ends() {
    let share = TenantShare { queue: 2, ..TenantShare::default() };
    let policy = Policy {
        device: Device { queue: 3, ..Device::default() },
        tenant: share,
        model: model(1, millis(100)),
        queue_timeout: Some(millis(150)),
        ..Policy::default()
    };
    let arrivals = ["a", "a", "a", "a", "b", "b"].map(|tenant| arrival(0, tenant, "model"));
    let report = simulate(&policy, arrivals.into_iter());
    // One runs, then one of each; the second of the first waits for 200 ms, which is too long.
    assert_eq!(of(&report, "a").refused, [(Refusal::TenantQueueFull, 1), (Refusal::QueueTimeout, 2)].into());
    assert_eq!(of(&report, "b").refused, [(Refusal::QueueFull, 1)].into());
    assert_eq!(report.totals.answered, 2);
}

#[test]
fn tenants_that_fill_the_queue_keep_no_other_out() {
    let policy = Policy {
        device: Device { queue: 8, ..Device::default() },
        tenant: TenantShare { queue: 2, ..TenantShare::default() },
        model: model(1, millis(100)),
        ..Policy::default()
    };
    let flood = ["a", "b", "c", "d"].map(|tenant| arrival(0, tenant, "model"));
    let arrivals = std::iter::repeat_n(flood, 9).flatten().chain([arrival(1, "other", "model")]);
    let report = simulate(&policy, arrivals);
    assert_eq!(of(&report, "other").refused, BTreeMap::new());
    // One of the first runs, and two of each wait.
    assert_eq!(report.totals.answered, 1 + 8 + 1);
}

#[test]
fn what_is_known_to_be_late_is_refused_at_once_and_what_is_late_when_it_is() {
    // What was learned of a graph is forgotten with it.
    let keep = Keep { keep_alive: Duration::from_secs(60), ..Keep::default() };
    let policy = ModelPolicy { keep, ..ModelPolicy::default() };
    let model = Model { policy, ..model(4, millis(40)) };
    let policy = Policy { model, deadline: Some(millis(85)), ..Policy::default() };
    // The first teaches how long a run takes. Of the other four two can be done in time, as no more than one of the
    // others is in the queue; the third is not refused at once because what runs is not counted.
    let at = [0, 100, 100, 100, 100].map(|ms| arrival(ms * MS, "a", "model"));
    let report = simulate(&policy, at.into_iter());
    let refused = [(Refusal::DeadlineTooSoon, 1), (Refusal::DeadlineExceeded, 1)];
    assert_eq!(report.totals.refused, refused.into());
    assert_eq!(report.totals.answered, 3);
    // It ran for an operator, and then nobody wanted it.
    assert_eq!(report.totals.device_time, (3 * 40 + 10) * MS);
}

#[test]
fn requests_wait_for_one_load_and_idle_graphs_make_room() {
    let keep = Keep { keep_alive: Duration::from_secs(60), ..Keep::default() };
    let sized = |bytes, keep| Model {
        bytes,
        load_time: millis(100),
        policy: ModelPolicy { keep, ..ModelPolicy::default() },
        ..model(1, millis(10))
    };
    let policy = Policy {
        device: Device { memory: 100, ..Device::default() },
        model: sized(40, keep),
        models: BTreeMap::from([
            ("pinned".to_owned(), sized(50, Keep { pin: true, ..keep })),
            ("huge".to_owned(), sized(60, keep)),
        ]),
        ..Policy::default()
    };
    let second = 1000 * MS;
    let report = simulate(
        &policy,
        [
            arrival(0, "a", "one"),
            arrival(MS, "a", "one"),
            arrival(second, "a", "pinned"),
            arrival(2 * second, "b", "one"),
            arrival(3 * second, "b", "huge"),
            arrival(4 * second, "a", "one"),
        ]
        .into_iter(),
    );
    assert_eq!(of(&report, "a").wait, Quantiles { p50: 100 * MS, p99: 109 * MS, max: 109 * MS });
    // Each tenant has a graph of its own, and there is room for one of them beside the pinned one.
    assert_eq!(of(&report, "b").refused, [(Refusal::DeviceMemory, 1)].into());
    let Totals { loads, hits, evictions, unloads, hit_rate, .. } = report.totals;
    assert_eq!((loads, hits, evictions, unloads, hit_rate), (4, 1, 2, 1, 200));
    assert_eq!(of(&report, "a").loads, 3);
}

#[test]
fn requests_ride_together_and_zeros_are_paid_for() {
    let batching = Batching { max_batch: 8, max_queue_delay: millis(5), preferred: vec![4], padding: true };
    let policy = ModelPolicy { batching: Arc::new(batching), public: true, ..ModelPolicy::default() };
    let model = Model { row_time: millis(1), policy, ..model(1, millis(4)) };
    let policy = Policy { model, ..Policy::default() };
    let arrivals = ["a", "a", "b"].map(|tenant| arrival(0, tenant, "model"));
    let report = simulate(&policy, arrivals.into_iter());
    let Totals { jobs, batches, rows, padding, device_time, .. } = report.totals;
    assert_eq!((jobs, batches, rows, padding, device_time), (1, 1, 4, 1, 8 * MS));
    assert_eq!(of(&report, "a").wait.max, 5 * MS);
    // Nothing below four rows would have needed no zeros.
    assert_eq!(of(&report, "a").device_time + of(&report, "b").device_time, 8 * MS);
    assert_eq!(report.models.len(), 1, "a public model is held once");
    // Only those of one class.
    let urgent = |tenant| Arrival { class: Class::Critical, ..arrival(0, tenant, "model") };
    let report = simulate(&policy, [urgent("a"), arrival(0, "b", "model"), urgent("c")].into_iter());
    assert_eq!((report.totals.jobs, report.totals.batches), (2, 1));
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Critical), Just(Class::Standard), Just(Class::Batch)]
}

fn batching() -> impl Strategy<Value = Batching> {
    (1..6u64, 0..20u64, vec(1..6u64, 0..2), any::<bool>()).prop_map(
        |(max_batch, delay, preferred, padding)| Batching {
            max_batch,
            max_queue_delay: millis(delay),
            preferred,
            padding,
        },
    )
}

prop_compose! {
    fn models()(
        operators in 1..9u32,
        (run, row) in (0..20u64, 0..5u64),
        bytes in 0..60u64,
        load in 0..50u64,
        (keep_alive, min_resident, pin) in (0..100u64, 0..50u64, prop::bool::weighted(0.1)),
        public in any::<bool>(),
        batching in batching(),
    ) -> Model {
        let keep = Keep { keep_alive: millis(keep_alive), pin, min_resident: millis(min_resident) };
        let policy = ModelPolicy { public, keep, batching: Arc::new(batching), ..ModelPolicy::default() };
        Model { row_time: millis(row), bytes, load_time: millis(load), policy, ..model(operators, millis(run)) }
    }
}

prop_compose! {
    fn policies()(
        (count, fifo, lru) in (1..4usize, any::<bool>(), any::<bool>()),
        memory in 20..200u64,
        (queue, tenant_queue) in (0..20usize, 0..10usize),
        quantum in 0..20u64,
        suspended in 0..4usize,
        quota in prop::option::of(20..100u64),
        (one, other) in (models(), models()),
        patience in prop::option::of(0..100u64),
        deadline in prop::option::of(0..200u64),
    ) -> Policy {
        Policy {
            device: Device {
                lanes: lanes(count),
                memory,
                queue,
                sharing: Sharing { quantum: millis(quantum), suspended, ..Sharing::default() },
                eviction: if lru { Eviction::Lru } else { Eviction::Cost },
                fifo,
            },
            tenant: TenantShare { queue: tenant_queue, memory: quota, ..TenantShare::default() },
            tenants: BTreeMap::from([("t0".to_owned(), TenantShare { weight: 3, ..TenantShare::default() })]),
            model: one,
            models: BTreeMap::from([("m0".to_owned(), other)]),
            queue_timeout: patience.map(millis),
            deadline: deadline.map(millis),
        }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    vec((0..30u64, 0..5u8, 0..4u8, 1..8u64, class()), 0..120).prop_map(|requests| {
        let mut at = 5000 * MS;
        let arrival = |(gap, tenant, model, rows, class): (u64, u8, u8, u64, Class)| {
            at += gap * MS / 2;
            Arrival {
                at,
                tenant: format!("t{tenant}").into(),
                model: format!("m{model}").into(),
                rows,
                class,
            }
        };
        requests.into_iter().map(arrival).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every request is answered or refused once, device time adds up and is not more than there is, and all of it is
    /// the same a second time.
    #[test]
    fn everything_adds_up(policy in policies(), arrivals in arrivals()) {
        let report = simulate(&policy, arrivals.iter().cloned());
        let Report { totals, tenants, models } = &report;
        for tenant in tenants {
            let mine = arrivals.iter().filter(|arrival| *arrival.tenant == *tenant.tenant).count();
            prop_assert_eq!(tenant.requests, mine as u64);
            prop_assert_eq!(tenant.requests, tenant.answered + tenant.refused.values().sum::<u64>());
            prop_assert!(tenant.wait.p50 <= tenant.wait.p99 && tenant.wait.p99 <= tenant.wait.max);
            prop_assert!(tenant.latency.max >= tenant.wait.max);
            if let Some(deadline) = policy.deadline {
                prop_assert!(u128::from(tenant.latency.max) <= deadline.as_nanos());
            }
        }
        prop_assert_eq!(totals.requests, arrivals.len() as u64);
        prop_assert_eq!(totals.answered, tenants.iter().map(|tenant| tenant.answered).sum::<u64>());
        prop_assert_eq!(totals.device_time, tenants.iter().map(|tenant| tenant.device_time).sum::<u64>());
        prop_assert!(totals.device_time <= totals.elapsed * policy.device.lanes.get() as u64);
        let refused = |why| totals.refused.get(&why).copied().unwrap_or(0);
        let no_memory = refused(Refusal::TenantMemory) + refused(Refusal::DeviceMemory);
        prop_assert_eq!(totals.loads + totals.hits + no_memory, totals.requests);
        prop_assert_eq!(totals.loads, tenants.iter().map(|tenant| tenant.loads).sum::<u64>());
        for model in models {
            prop_assert!(model.evictions + model.unloads <= model.loads);
        }
        prop_assert_eq!(&report, &simulate(&policy, arrivals.into_iter()));
    }

    /// Without deadlines, every job that begins runs to its end: what the lanes were used is what the models say.
    #[test]
    fn lanes_are_used_as_long_as_the_models_say(policy in policies(), arrivals in arrivals()) {
        let models = BTreeMap::new();
        let policy = Policy { deadline: None, models, ..policy };
        let Totals { jobs, rows, device_time, .. } = simulate(&policy, arrivals.into_iter()).totals;
        let Model { run_time, row_time, .. } = policy.model;
        let due = run_time.as_nanos() * u128::from(jobs) + row_time.as_nanos() * u128::from(rows);
        prop_assert_eq!(u128::from(device_time), due);
    }
}
