//! The law of the bill: what is on all tabs is what the device has measured in all, whatever happened to the requests.

use std::collections::HashMap;
use std::sync::Mutex;

use proptest::collection::vec;
use proptest::prelude::*;
use weir_gpu::{SYSTEM, Stats, Tab, Used};

use super::batches::gather;
use super::*;

const TENANTS: u64 = 64;

/// What each tenant has to pay for, from its tabs and from what it held in memory.
#[derive(Clone, Default)]
struct Bills(Arc<Mutex<HashMap<String, Used>>>);

impl Bills {
    fn add(&self, tenant: &str, used: Used) {
        let mut bills = self.0.lock().unwrap();
        let bill = bills.entry(tenant.to_owned()).or_default();
        bill.device += used.device;
        bill.load += used.load;
        bill.loads += used.loads;
        bill.byte_ns += used.byte_ns;
    }

    fn tab(&self, tenant: &str) -> Arc<Tab> {
        let (bills, tenant) = (self.clone(), tenant.to_owned());
        Arc::new(Tab::new(move |rest| bills.add(&tenant, rest)))
    }

    /// Everybody's graphs in equal parts to those who used them; what is over, and what nobody used, to the system.
    fn add_held(&self, service: &Service) {
        for held in service.take_held() {
            if *held.owner != *SYSTEM {
                self.add(&held.owner, Used { byte_ns: held.byte_ns, ..Used::default() });
                continue;
            }
            let part = held.byte_ns.checked_div(held.users.len() as u128).unwrap_or(0);
            for user in &held.users {
                self.add(user, Used { byte_ns: part, ..Used::default() });
            }
            let rest = held.byte_ns - part * held.users.len() as u128;
            self.add(SYSTEM, Used { byte_ns: rest, ..Used::default() });
        }
    }

    fn sum(&self) -> Used {
        let sum = |sum: Used, one: &Used| Used {
            device: sum.device + one.device,
            load: sum.load + one.load,
            loads: sum.loads + one.loads,
            byte_ns: sum.byte_ns + one.byte_ns,
            ..sum
        };
        self.0.lock().unwrap().values().fold(Used::default(), sum)
    }
}

/// How a tenant's requests ended.
#[derive(Default)]
struct Ends {
    answered: u64,
    failed: u64,
    refused: u64,
    left: u64,
}

/// What a tenant asks for once.
#[derive(Debug, Clone)]
struct Turn {
    /// Which of the models.
    model: usize,
    rows: usize,
    max_batch: u64,
    /// Whether batches are filled with zeros.
    padding: bool,
    /// Whether the graph stays when nobody uses it.
    stays: bool,
    /// Of the model that looks rows up: one that is not there, which fails the batch.
    fails: bool,
    /// After how many microseconds its time is over, and its caller leaves.
    deadline: Option<u64>,
    patience: Option<u64>,
    /// Whether what is held of memory is told of after it.
    tells: bool,
}

/// What happens on a device.
#[derive(Debug, Clone)]
struct Mix {
    lanes: usize,
    /// Bytes of the device, and of each tenant where it has a quota.
    memory: u64,
    quotas: Vec<Option<u64>>,
    /// Of each tenant.
    turns: Vec<Vec<Turn>>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let deadline = prop::option::weighted(0.1, 0_u64..2000);
    let patience = prop::option::weighted(0.2, 0_u64..2000);
    let padding = any::<bool>();
    let flags = (padding, any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    (0..MODELS, 1..5_usize, 1..6_u64, flags, deadline, patience).prop_map(
        |(model, rows, max_batch, (padding, stays, fails, tells), deadline, patience)| Turn {
            model,
            rows,
            max_batch,
            padding,
            stays,
            fails,
            deadline,
            patience,
            tells,
        },
    )
}

fn mix() -> impl Strategy<Value = Mix> {
    let tenants = TENANTS as usize;
    let quotas = vec(prop::option::of(3_000_u64..40_000), tenants);
    (1..4_usize, 100_000_u64..1_000_000, quotas, vec(vec(turn(), 0..12), tenants))
        .prop_map(|(lanes, memory, quotas, turns)| Mix { lanes, memory, quotas, turns })
}

const MODELS: usize = 6;

fn models() -> [Vec<u8>; MODELS] {
    [product("n", 16), product("n", 64), chain(4, "300"), chain(40, "900"), gather(), vec![1; 99]]
}

/// Lets it happen, and sees that the bill adds up.
async fn happens(mix: Mix) -> (Ends, Stats) {
    let config = DeviceConfig {
        memory: mix.memory,
        cpu_lanes: NonZeroUsize::new(mix.lanes),
        sharing: Sharing { quantum: Duration::from_micros(50), ..Sharing::default() },
        ..DeviceConfig::default()
    };
    let service = service(config);
    for (tenant, memory) in mix.quotas.iter().enumerate() {
        let share = TenantShare { memory: *memory, queue: 1000, ..TenantShare::default() };
        service.set_tenant(&format!("t{tenant}"), share);
    }
    let (models, bills) = (Arc::new(models()), Bills::default());
    let tasks = mix.turns.into_iter().enumerate().map(|(tenant, turns)| {
        let (service, models, bills) = (service.clone(), Arc::clone(&models), bills.clone());
        tokio::spawn(async move {
            let (name, mut ends) = (format!("t{tenant}"), Ends::default());
            for turn in turns {
                take(&service, &*models, &bills, &name, turn, &mut ends).await;
            }
            ends
        })
    });
    let mut ends = Ends::default();
    for task in tasks.collect::<Vec<_>>() {
        let task = task.await.unwrap();
        ends.answered += task.answered;
        ends.failed += task.failed;
        ends.refused += task.refused;
        ends.left += task.left;
    }
    while service.stats().devices[0].busy > 0 {
        tokio::task::yield_now().await;
    }
    for graph in service.stats().resident {
        let public = *graph.owner == *SYSTEM;
        let policy = ModelPolicy { public, ..ModelPolicy::default() };
        service.keep(&graph.owner, &model(&graph.digest, vec![], policy), &ModelPolicy::default());
    }
    is_at_rest(&service);
    assert_eq!(service.stats().memory, 0);
    bills.add_held(&service);
    assert_eq!(service.take_held(), [], "what was told of is not told of again");

    let stats = service.stats();
    let (sum, device) = (bills.sum(), &stats.devices[0]);
    assert_eq!((sum.device, device.unbilled), (device.used, 0), "time of lanes, in nanoseconds");
    assert_eq!(sum.load, device.load_time, "time of loads, in nanoseconds");
    assert_eq!(sum.byte_ns, device.memory.byte_ns, "memory over time, in bytes × nanoseconds");
    for (tenant, used) in &device.device_time {
        let billed = bills.0.lock().unwrap().get(&**tenant).map_or(0, |bill| bill.device);
        assert_eq!(billed, *used, "{tenant}");
    }
    (ends, stats)
}

async fn take(service: &Service, models: &[Vec<u8>], bills: &Bills, name: &str, turn: Turn, ends: &mut Ends) {
    let number = turn.model;
    let batching = Batching {
        max_batch: turn.max_batch,
        max_queue_delay: Duration::from_micros(200),
        preferred: if turn.padding { vec![4] } else { vec![] },
        padding: turn.padding,
    };
    let keep_alive = Duration::from_secs(if turn.stays { 60 } else { 0 });
    let policy = ModelPolicy {
        public: number.is_multiple_of(2),
        keep: Keep { keep_alive, ..Keep::default() },
        batching: Arc::new(batching),
        ..ModelPolicy::default()
    };
    let source = model(&format!("m{number}"), models[number].clone(), policy);
    let tab = bills.tab(name);
    let lease = service.load_on(name, &source, DeviceKind::Cpu, &tab).await;
    bills.add(name, tab.take());
    let Ok(lease) = lease else {
        ends.refused += 1;
        return;
    };
    let rows = turn.rows;
    let input = match number {
        // One of its three rows, or one that is not there.
        4 => crate::i64s(&vec![if turn.fails { 5000 } else { 2 }; rows], &[rows]),
        0 => values(&[rows, 16], rows as u32),
        1 => values(&[rows, 64], rows as u32),
        2 => values(&[rows, 300], rows as u32),
        _ => values(&[rows, 900], rows as u32),
    };
    let deadline = turn.deadline.map(|micros| tokio::time::Instant::now() + Duration::from_micros(micros));
    let tab = bills.tab(name);
    let job = Job { deadline, tab: Arc::clone(&tab), ..Job::default() };
    let patience = turn.patience.map_or(Duration::MAX, Duration::from_micros);
    match tokio::time::timeout(patience, run(service, &lease, &input, job)).await {
        Ok(Ok(inference)) => {
            bills.add(name, inference.cost.used);
            ends.answered += 1;
        }
        Ok(Err(Error::Engine(_) | Error::EnginePanic(_))) => ends.failed += 1,
        Ok(Err(_)) => ends.refused += 1,
        Err(_) => ends.left += 1,
    }
    bills.add(name, tab.take());
    if turn.tells {
        bills.add_held(service);
    }
}

/// Batches with padding, rows that fail their batch, callers that leave at once or in the middle, deadlines, evictions, loads
/// that fail, and quotas: of many tenants at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_all_tabs_is_what_the_device_has_measured() {
    let turn = |tenant: u64, turn: u64| Turn {
        model: (tenant * 31 + turn * 17) as usize % MODELS,
        rows: 1 + (turn as usize * 7 + tenant as usize) % 4,
        max_batch: 1 + turn % 5,
        padding: turn.is_multiple_of(3),
        stays: !turn.is_multiple_of(2),
        fails: turn % 3 == 1,
        deadline: (turn % 13 == 5).then_some(300),
        patience: (turn % 7 == 3).then_some(turn * 20),
        tells: turn.is_multiple_of(10),
    };
    let mix = Mix {
        lanes: 3,
        memory: 400_000,
        quotas: (0..TENANTS).map(|tenant| (tenant % 3 > 0).then(|| 3_000 + tenant * 997 % 40_000)).collect(),
        turns: (0..TENANTS).map(|tenant| (0..50).map(|number| turn(tenant, number)).collect()).collect(),
    };
    let (Ends { answered, failed, refused, left }, stats) = happens(mix).await;
    println!(
        "{answered} answered, {failed} failed, {refused} refused, {left} left; {} batches, {} evictions, {} loads failed",
        stats.batches, stats.evictions, stats.failed_loads
    );
    assert!(
        answered > 0 && failed > 0 && refused > 0 && left > 0 && stats.batches > 0 && stats.evictions > 0
    );
    let device = &stats.devices[0];
    assert!(device.used > 0 && device.load_time > 0 && device.memory.byte_ns > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_bill_adds_up(mix in mix()) {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        threads.unwrap().block_on(happens(mix));
    }
}
