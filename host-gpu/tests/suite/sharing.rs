//! Tenants on one device: memory that is planned, requests that ride together, callers that leave.

mod batches;
mod bill;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::Semaphore;
use weir_gpu::{
    Batching, Class, DeviceConfig, DeviceKind, Dtype, Error, Format, InProcess, Inference, Job, Keep, Lease,
    ModelPolicy, ModelSource, Service, Sharing, TenantShare, Tensor,
};

use crate::f32s;
use crate::onnx::{self, DataType, Graph, product, tanh};

fn service(config: DeviceConfig) -> Service {
    Service::new(&config, Arc::new(InProcess(config.model)))
}

fn one_lane() -> DeviceConfig {
    DeviceConfig { cpu_lanes: NonZeroUsize::new(1), ..DeviceConfig::default() }
}

/// A model whose bytes are its name.
fn model(digest: &str, bytes: Vec<u8>, policy: ModelPolicy) -> ModelSource {
    let source = ModelSource::from_memory(digest, Format::Onnx, bytes.into());
    ModelSource { policy, ..source }
}

fn batching(max_batch: u64, delay: Duration) -> ModelPolicy {
    let batching = Batching { max_batch, max_queue_delay: delay, ..Batching::default() };
    ModelPolicy { batching: Arc::new(batching), ..ModelPolicy::default() }
}

async fn load(service: &Service, tenant: &str, model: &ModelSource) -> Result<Lease, Error> {
    service.load(tenant, model, DeviceKind::Cpu).await
}

async fn run(service: &Service, lease: &Lease, input: &Tensor, job: Job) -> Result<Inference, Error> {
    let name = lease.signature().inputs[0].name.clone();
    service.infer(lease, vec![(name, input.clone())], job).await
}

fn values(shape: &[usize], seed: u32) -> Tensor {
    let count: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let data = (0..count).flat_map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((f64::from(state >> 8) / f64::from(1 << 24)) as f32).to_le_bytes()
    });
    Tensor::new(Dtype::F32, shape.to_vec(), data.collect::<Vec<u8>>().into()).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let (chunks, _) = tensor.data().as_chunks::<4>();
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[track_caller]
fn assert_close(one: &Tensor, other: &Tensor) {
    assert_eq!((one.dtype(), one.shape()), (other.dtype(), other.shape()));
    for (one, other) in floats(one).into_iter().zip(floats(other)) {
        assert!((one - other).abs() <= 1e-4 + 1e-4 * other.abs(), "{one} against {other}");
    }
}

#[track_caller]
fn is_at_rest(service: &Service) {
    let stats = service.stats();
    let device = &stats.devices[0];
    assert_eq!((device.busy, device.queued, device.suspended), (0, 0, 0));
    let activations: u64 = device.memory.accounts.iter().map(|account| account.activations).sum();
    assert_eq!(activations, 0);
}

/// `steps` operators that double, on `f32 [n, width]`.
fn chain(steps: usize, width: &str) -> Vec<u8> {
    let mut graph = Graph::default().input("x", DataType::Float, &["n", width]);
    let mut last = "x".to_owned();
    for step in 0..steps {
        let next = format!("y{step}");
        let operator = if step % 2 == 0 { "Tanh" } else { "Sigmoid" };
        graph = graph.node(operator, &[&last], &next);
        last = next;
    }
    graph.output(&last, DataType::Float, &["n", width]).bytes()
}

#[tokio::test]
async fn a_tenant_has_the_default_quota_until_it_is_given_its_own() {
    let tenant = TenantShare { memory: Some(1000), ..TenantShare::default() };
    let service = service(DeviceConfig { tenant, ..one_lane() });
    let source = model("m", chain(3, "256"), ModelPolicy::default());
    let input = values(&[1, 256], 1);
    let refused = load(&service, "t", &source).await.unwrap_err();
    assert!(matches!(refused, Error::TenantMemory { limit: 1000, .. }), "{refused}");
    service.set_tenant("t", TenantShare::default());
    let lease = load(&service, "t", &source).await.unwrap();
    assert!(run(&service, &lease, &input, Job::default()).await.is_ok());
}

/// What a caller that leaves leaves behind: nothing in the queue, no memory, and at most the operator that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_operator_runs_after_its_caller_has_left() {
    let service = service(one_lane());
    // Operators of a few milliseconds each.
    let source = model("m", chain(400, "100000"), ModelPolicy::default());
    let lease = Arc::new(load(&service, "t", &source).await.unwrap());
    let input = values(&[4, 100_000], 1);
    for _ in 0..3 {
        let before = service.stats().operators;
        let (caller, held) = (service.clone(), Arc::clone(&lease));
        let sent = input.clone();
        let call = tokio::spawn(async move { run(&caller, &held, &sent, Job::default()).await });
        while service.stats().operators < before + 3 {
            tokio::task::yield_now().await;
        }
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let at_leaving = service.stats().operators;
        while service.stats().devices[0].busy > 0 {
            tokio::task::yield_now().await;
        }
        let after = service.stats().operators - at_leaving;
        assert!(after <= 1, "{after} operators ran after the caller had left");
    }
    is_at_rest(&service);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_job_makes_way_for_another_tenants_short_one() {
    let service = service(one_lane());
    let long = model("long", chain(300, "100000"), ModelPolicy::default());
    let short = model("short", chain(3, "1000"), ModelPolicy::default());
    let flood = Arc::new(load(&service, "flood", &long).await.unwrap());
    let victim = load(&service, "victim", &short).await.unwrap();
    let mut floods = vec![];
    for _ in 0..4 {
        let (service, flood, input) = (service.clone(), Arc::clone(&flood), values(&[4, 100_000], 1));
        floods.push(tokio::spawn(async move { run(&service, &flood, &input, Job::default()).await }));
    }
    while service.stats().operators < 2 {
        tokio::task::yield_now().await;
    }
    let answer = run(&service, &victim, &values(&[1, 1000], 2), Job::default()).await.unwrap();
    assert!(answer.cost.used.operators >= 3);
    let stats = service.stats();
    assert!(stats.inferences == 1, "it was answered before any of those that came before it");
    assert!(stats.devices[0].suspensions >= 1);
    for flood in floods {
        assert!(flood.await.unwrap().is_ok(), "and they go on");
    }
    is_at_rest(&service);
}

#[tokio::test]
async fn waiting_has_an_end() {
    let service = service(one_lane());
    let source = model("long", chain(200, "100000"), ModelPolicy::default());
    let lease = Arc::new(load(&service, "t", &source).await.unwrap());
    let (other, held, input) = (service.clone(), Arc::clone(&lease), values(&[4, 100_000], 1));
    let long = tokio::spawn(async move { run(&other, &held, &input, Job::default()).await });
    while service.stats().devices[0].busy == 0 {
        tokio::task::yield_now().await;
    }
    let waited = Duration::from_millis(1);
    let hurry = Job { queue_timeout: Some(waited), ..Job::default() };
    let refused = run(&service, &lease, &values(&[1, 100_000], 1), hurry).await.unwrap_err();
    assert_eq!(refused, Error::QueueTimeout { waited });
    let answer = long.await.unwrap().unwrap();
    // Now it is known how long such a run takes.
    let deadline = Some(tokio::time::Instant::now() + answer.cost.device() / 10);
    let operators = service.stats().operators;
    let late = run(&service, &lease, &values(&[4, 100_000], 1), Job { deadline, ..Job::default() }).await;
    assert!(matches!(late.unwrap_err(), Error::DeadlineTooSoon { .. }));
    assert_eq!(service.stats().operators, operators, "the device has not been troubled");
    is_at_rest(&service);
}

#[tokio::test]
async fn long_inputs_of_one_tenant_do_not_have_short_ones_of_another_refused() {
    let service = service(one_lane());
    let policy = ModelPolicy { public: true, ..ModelPolicy::default() };
    let source = model("m", chain(50, "width"), policy);
    let (long, short) =
        (load(&service, "long", &source).await.unwrap(), load(&service, "short", &source).await.unwrap());
    let answer = run(&service, &long, &values(&[1, 200_000], 1), Job::default()).await.unwrap();
    let hurry = || {
        let deadline = Some(tokio::time::Instant::now() + answer.cost.device() / 10);
        Job { deadline, ..Job::default() }
    };
    let refused = run(&service, &long, &values(&[1, 200_000], 1), hurry()).await.unwrap_err();
    assert!(matches!(refused, Error::DeadlineTooSoon { .. }), "{refused}");
    // Whether it is done in time is another matter.
    let tried = run(&service, &short, &values(&[1, 2], 1), hurry()).await;
    assert!(!matches!(tried, Err(Error::DeadlineTooSoon { .. })), "{tried:?}");
}

#[tokio::test]
async fn thirty_two_tenants_share_one_public_model() {
    let service = service(one_lane());
    let bytes = product("n", 512);
    let public = model("m", bytes, ModelPolicy { public: true, ..ModelPolicy::default() });
    let mut leases = vec![load(&service, "t0", &public).await.unwrap()];
    let one = service.stats().memory;
    assert!(one >= 512 * 512 * 4);
    for tenant in 1..32 {
        leases.push(load(&service, &format!("t{tenant}"), &public).await.unwrap());
    }
    let stats = service.stats();
    assert_eq!((stats.memory, stats.loads, stats.resident.len()), (one, 1, 1));
    assert_eq!(stats.devices[0].memory.accounts[0].tenant, weir_gpu::SYSTEM.into());
    let input = values(&[1, 512], 1);
    for lease in &leases {
        assert!(run(&service, lease, &input, Job::default()).await.is_ok());
    }
    drop(leases);
    assert_eq!(service.stats().memory, 0);
    // What is not public is each tenant's own.
    let private = ModelSource { policy: ModelPolicy::default(), ..public };
    let _mine = load(&service, "t0", &private).await.unwrap();
    let _theirs = load(&service, "t1", &private).await.unwrap();
    assert_eq!(service.stats().resident.len(), 2);
}

/// Random models, sizes and quotas, many tenants at once: nobody ever has more than it may, the books always add up, and
/// in the end they are empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tenants_never_have_more_than_they_may() {
    const TENANTS: u64 = 64;
    let capacity = 600_000;
    let config = DeviceConfig {
        memory: capacity,
        cpu_lanes: NonZeroUsize::new(4),
        sharing: Sharing { quantum: Duration::from_micros(50), ..Sharing::default() },
        ..DeviceConfig::default()
    };
    let service = service(config);
    let models: Vec<Vec<u8>> = vec![
        product("n", 16),
        product("n", 64),
        product("4", 40),
        chain(4, "300"),
        chain(12, "50"),
        tanh(&["n", "700"]),
    ];
    let quota = |tenant: u64| (!tenant.is_multiple_of(3)).then(|| 3_000 + tenant * 997 % 40_000);
    let share = |tenant: u64| TenantShare { memory: quota(tenant), queue: 1000, ..TenantShare::default() };
    for tenant in 0..TENANTS {
        service.set_tenant(&format!("t{tenant}"), share(tenant));
    }
    let done = Arc::new(Semaphore::new(0));
    let tasks = (0..TENANTS).map(|tenant| {
        let (service, models, done) = (service.clone(), models.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let name = format!("t{tenant}");
            let (mut answered, mut refused) = (0, 0);
            for turn in 0..60u64 {
                let number = (tenant * 31 + turn * 17) as usize % models.len();
                let keep = Keep { keep_alive: Duration::from_secs(turn % 2 * 60), ..Keep::default() };
                let max_batch = 1 + turn % 4;
                let policy = ModelPolicy {
                    public: number == 3,
                    keep,
                    ..batching(max_batch, Duration::from_micros(200))
                };
                let source = model(&format!("m{number}"), models[number].clone(), policy);
                let result = async {
                    let lease = load(&service, &name, &source).await?;
                    let spec = &lease.signature().inputs[0].shape;
                    let shape: Vec<usize> = spec
                        .iter()
                        .map(|dim| match dim {
                            weir_gpu::Dim::Fixed(size) => *size,
                            _ => 1 + (turn as usize * 7 + tenant as usize) % 9,
                        })
                        .collect();
                    let input = values(&shape, turn as u32);
                    let call = run(&service, &lease, &input, Job::default());
                    if turn % 11 == 0 {
                        // One that leaves at once.
                        return Ok(call.now_or_never().is_some());
                    }
                    call.await.map(|_| true)
                };
                match result.await {
                    Ok(_) => answered += 1,
                    Err(Error::TenantMemory { limit, used, requested, .. }) => {
                        assert!(used.saturating_add(requested) > limit);
                        refused += 1;
                    }
                    Err(Error::DeviceMemory { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            done.add_permits(1);
            (answered, refused)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut looks = 0;
    while done.available_permits() < TENANTS as usize {
        let memory = &service.stats().devices[0].memory;
        let sum: u64 = memory.accounts.iter().map(|account| account.total()).sum();
        assert_eq!(sum, memory.used);
        assert!(memory.used <= capacity);
        for account in &memory.accounts {
            assert!(account.quota.is_none_or(|quota| account.total() <= quota), "{account:?}");
        }
        looks += 1;
        tokio::task::yield_now().await;
    }
    let (mut answered, mut refused) = (0, 0);
    for task in tasks {
        let (ok, no) = task.await.unwrap();
        answered += ok;
        refused += no;
    }
    println!("{answered} answered, {refused} refused, the books read {looks} times");
    assert!(answered > 500 && refused > 50, "{answered} answered, {refused} refused");
    while service.stats().devices[0].busy > 0 {
        tokio::task::yield_now().await;
    }
    for graph in service.stats().resident {
        let public = &*graph.owner == weir_gpu::SYSTEM;
        let policy = ModelPolicy { public, ..ModelPolicy::default() };
        service.keep(&graph.owner, &model(&graph.digest, vec![], policy), &ModelPolicy::default());
    }
    is_at_rest(&service);
    assert_eq!(service.stats().memory, 0);
    let stats = service.stats();
    assert_eq!(stats.loads, stats.unloads + stats.evictions);
}

/// Three tenants that always have work get device time by their weights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_time_follows_weights() {
    let mut config = one_lane();
    // What a tenant may have beyond its share at any moment, which is little beside what is looked at.
    config.sharing.quantum = Duration::from_millis(2);
    let service = service(config);
    let source = model("m", chain(30, "20000"), ModelPolicy::default());
    let mut workers = vec![];
    for (tenant, weight) in [("one", 1), ("two", 2), ("four", 4)] {
        service.set_tenant(tenant, TenantShare { weight, ..TenantShare::default() });
        for _ in 0..3 {
            let (service, source) = (service.clone(), source.clone());
            workers.push(tokio::spawn(async move {
                let lease = load(&service, tenant, &source).await.unwrap();
                let input = values(&[1, 20_000], 1);
                loop {
                    run(&service, &lease, &input, Job::default()).await.unwrap();
                }
            }));
        }
    }
    let used = || -> BTreeMap<String, u64> {
        let times = service.stats().devices[0].device_time.clone();
        times.iter().map(|(tenant, nanos)| (tenant.to_string(), *nanos)).collect()
    };
    let sum = |times: &BTreeMap<String, u64>| times.values().sum::<u64>();
    // Until all of them are there, and then for a second of device time.
    while used().len() < 3 || sum(&used()) < 300_000_000 {
        tokio::task::yield_now().await;
    }
    let before = used();
    while sum(&used()) - sum(&before) < 1_000_000_000 {
        tokio::task::yield_now().await;
    }
    let after = used();
    for worker in workers {
        worker.abort();
    }
    let had = |tenant: &str| (after[tenant] - before[tenant]) as f64;
    let all = had("one") + had("two") + had("four");
    for (tenant, share) in [("one", 1.0 / 7.0), ("two", 2.0 / 7.0), ("four", 4.0 / 7.0)] {
        let share_of = had(tenant) / all;
        println!("{tenant}: {share_of:.4}, due {share:.4}");
        assert!((share_of / share - 1.0).abs() < 0.15, "{tenant} had {share_of}, due {share}");
    }
}

#[tokio::test]
async fn a_class_is_no_more_urgent_than_its_tenant_may_have() {
    let service = service(one_lane());
    service.set_tenant("t", TenantShare { class: Class::Batch, ..TenantShare::default() });
    let lease = load(&service, "t", &model("m", tanh(&["2"]), ModelPolicy::default())).await.unwrap();
    let job = Job { class: Class::Critical, ..Job::default() };
    assert!(run(&service, &lease, &f32s(&[2]), job).await.is_ok());
}
