//! The law of the bill: what is on all tabs is what the device has measured in all, whatever happened to the requests.

use std::collections::HashMap;
use std::sync::Mutex;

use weir_gpu::{SYSTEM, Tab, Used};

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

/// Batches with padding, rows that fail their batch, callers that leave at once or in the middle, deadlines, evictions, loads
/// that fail, and quotas: of many tenants at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_all_tabs_is_what_the_device_has_measured() {
    let config = DeviceConfig {
        memory: 400_000,
        cpu_lanes: NonZeroUsize::new(3),
        sharing: Sharing { quantum: Duration::from_micros(50), ..Sharing::default() },
        ..DeviceConfig::default()
    };
    let service = service(config);
    for tenant in 0..TENANTS {
        let memory = (tenant % 3 > 0).then(|| 3_000 + tenant * 997 % 40_000);
        let share = TenantShare { memory, queue: 1000, ..TenantShare::default() };
        service.set_tenant(&format!("t{tenant}"), share);
    }
    let models = Arc::new([
        product("n", 16),
        product("n", 64),
        chain(4, "300"),
        chain(40, "900"),
        gather(),
        vec![1; 99],
    ]);
    let bills = Bills::default();
    let tasks = (0..TENANTS).map(|tenant| {
        let (service, models, bills) = (service.clone(), Arc::clone(&models), bills.clone());
        tokio::spawn(async move {
            let (name, mut ends) = (format!("t{tenant}"), Ends::default());
            for turn in 0..50u64 {
                let number = (tenant * 31 + turn * 17) as usize % models.len();
                let batching = Batching {
                    max_batch: 1 + turn % 5,
                    max_queue_delay: Duration::from_micros(200),
                    preferred: if turn % 3 == 0 { vec![4] } else { vec![] },
                    padding: turn % 3 == 0,
                };
                let policy = ModelPolicy {
                    public: number.is_multiple_of(2),
                    keep: Keep { keep_alive: Duration::from_secs(turn % 2 * 60), ..Keep::default() },
                    batching: Arc::new(batching),
                    ..ModelPolicy::default()
                };
                let source = model(&format!("m{number}"), models[number].clone(), policy);
                let tab = bills.tab(&name);
                let lease = service.load_on(&name, &source, DeviceKind::Cpu, &tab).await;
                bills.add(&name, tab.take());
                let Ok(lease) = lease else {
                    ends.refused += 1;
                    continue;
                };
                let rows = 1 + (turn as usize * 7 + tenant as usize) % 4;
                let input = match number {
                    // One of its three rows, or one that is not there.
                    4 => crate::i64s(&vec![if turn % 3 == 1 { 5000 } else { 2 }; rows], &[rows]),
                    0 => values(&[rows, 16], turn as u32),
                    1 => values(&[rows, 64], turn as u32),
                    2 => values(&[rows, 300], turn as u32),
                    _ => values(&[rows, 900], turn as u32),
                };
                let deadline =
                    (turn % 13 == 5).then(|| tokio::time::Instant::now() + Duration::from_micros(300));
                let tab = bills.tab(&name);
                let job = Job { deadline, tab: Arc::clone(&tab), ..Job::default() };
                let call = run(&service, &lease, &input, job);
                let patience = if turn % 7 == 3 { Duration::from_micros(turn * 20) } else { Duration::MAX };
                match tokio::time::timeout(patience, call).await {
                    Ok(Ok(inference)) => {
                        bills.add(&name, inference.cost.used);
                        ends.answered += 1;
                    }
                    Ok(Err(Error::Engine(_) | Error::EnginePanic(_))) => ends.failed += 1,
                    Ok(Err(_)) => ends.refused += 1,
                    Err(_) => ends.left += 1,
                }
                bills.add(&name, tab.take());
                if turn % 10 == 0 {
                    bills.add_held(&service);
                }
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
    let Ends { answered, failed, refused, left } = ends;
    println!(
        "{answered} answered, {failed} failed, {refused} refused, {left} left; {} batches, {} evictions, {} loads failed",
        stats.batches, stats.evictions, stats.failed_loads
    );
    assert!(
        answered > 0 && failed > 0 && refused > 0 && left > 0 && stats.batches > 0 && stats.evictions > 0
    );
    let (sum, device) = (bills.sum(), &stats.devices[0]);
    assert_eq!((sum.device, device.unbilled), (device.used, 0), "time of lanes, in nanoseconds");
    assert_eq!(sum.load, device.load_time, "time of loads, in nanoseconds");
    assert_eq!(sum.byte_ns, device.memory.byte_ns, "memory over time, in bytes × nanoseconds");
    assert!(sum.device > 0 && sum.load > 0 && sum.byte_ns > 0);
    for (tenant, used) in &device.device_time {
        assert_eq!(bills.0.lock().unwrap()[&**tenant].device, *used, "{tenant}");
    }
}
