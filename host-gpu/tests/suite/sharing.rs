//! Tenants on one device: memory that is planned, requests that ride together, callers that leave.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
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

/// The models that ship, and one of each kind of graph: rows that rode together are what they are alone.
#[tokio::test]
async fn a_batch_is_the_same_as_its_requests_one_by_one() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let file = |name: &str| std::fs::read(models.join(name)).unwrap();
    let tokens = |seed: u32| {
        let data = (0..2048u32).flat_map(|place| (place.wrapping_mul(seed + 7) % 257).to_le_bytes());
        Tensor::new(Dtype::I32, vec![1, 2048], data.collect::<Vec<u8>>().into()).unwrap()
    };
    type Input = Box<dyn Fn(u32) -> Tensor>;
    let image = |shape: [usize; 4]| -> Input { Box::new(move |seed| values(&shape, seed)) };
    let cases: Vec<(&str, Vec<u8>, Input)> = vec![
        ("product", product("n", 32), Box::new(|seed| values(&[1 + seed as usize % 2, 32], seed))),
        ("chain", chain(5, "16"), Box::new(|seed| values(&[1, 16], seed))),
        ("magika", file("magika/model.onnx"), Box::new(tokens)),
        ("ppocr cls", file("ppocr/cls.onnx"), image([1, 3, 48, 192])),
        ("ppocr rec", file("ppocr/rec.onnx"), image([1, 3, 48, 64])),
        ("ppocr det", file("ppocr/det.onnx"), image([1, 3, 64, 64])),
    ];
    let service = service(one_lane());
    for (name, bytes, input) in cases {
        let alone = load(&service, "a", &model(name, bytes.clone(), ModelPolicy::default())).await.unwrap();
        let inputs: Vec<Tensor> = (0..4).map(&*input).collect();
        let rows: u64 = inputs.iter().map(|input| input.shape()[0] as u64).sum();
        let mut expected = vec![];
        for input in &inputs {
            expected.push(run(&service, &alone, input, Job::default()).await.unwrap());
        }
        // It departs when the last one has come.
        let policy = batching(rows, Duration::from_secs(60));
        let together = load(&service, "b", &model(name, bytes, policy)).await.unwrap();
        let before = service.stats().batches;
        let ridden =
            join_all(inputs.iter().map(|input| run(&service, &together, input, Job::default()))).await;
        assert_eq!(service.stats().batches, before + 1, "{name}");
        let mut device = Duration::ZERO;
        for (ridden, alone) in ridden.into_iter().zip(expected) {
            let ridden = ridden.unwrap();
            assert_eq!((ridden.cost.batch, ridden.cost.rows), (rows, alone.cost.rows), "{name}");
            assert!(ridden.cost.device > Duration::ZERO);
            device += ridden.cost.device;
            for ((one, ridden), (other, alone)) in ridden.outputs.iter().zip(&alone.outputs) {
                assert_eq!(one, other);
                assert_close(ridden, alone);
            }
        }
        let of_b = service.stats().devices[0].device_time[&Arc::from("b")];
        println!("{name}: {rows} rows in {device:?}; tenant b has had {of_b} ns");
    }
    is_at_rest(&service);
}

#[tokio::test]
async fn the_parts_of_a_batch_make_up_what_its_lane_was_held() {
    let service = service(one_lane());
    let source = model("m", chain(20, "256"), batching(8, Duration::from_secs(60)));
    let tenants = ["a", "b", "c"];
    let mut leases = vec![];
    for tenant in tenants {
        // Public, so that it is one graph.
        let policy = ModelPolicy { public: true, ..source.policy.clone() };
        leases.push(load(&service, tenant, &ModelSource { policy, ..source.clone() }).await.unwrap());
    }
    let inputs = [values(&[1, 256], 1), values(&[3, 256], 2), values(&[4, 256], 3)];
    let runs = leases.iter().zip(&inputs).map(|(lease, input)| run(&service, lease, input, Job::default()));
    let ridden: Vec<Inference> = join_all(runs).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(service.stats().batches, 1);
    let by_tenant = &service.stats().devices[0].device_time;
    let charged: u64 = tenants.iter().map(|tenant| by_tenant[&Arc::from(*tenant)]).sum();
    let billed: u128 = ridden.iter().map(|inference| inference.cost.device.as_nanos()).sum();
    // What the lane did after the run was over, to hand it on, is charged too, and is nobody's.
    assert!(billed <= u128::from(charged), "{billed} of {charged}");
    let [one, three, four] = [0, 1, 2].map(|at: usize| ridden[at].cost.device.as_nanos());
    assert!(three.abs_diff(3 * one) <= 3 && four.abs_diff(4 * one) <= 4, "{one} {three} {four}");
    let peaks: u64 = ridden.iter().map(|inference| inference.cost.peak).sum();
    assert_eq!(peaks, 2 * 8 * 256 * 4, "what an operator reads and what it writes");
}

/// `y = table[x]`, with a table of three rows: a request that asks for another one fails, whoever it rides with.
fn gather() -> Vec<u8> {
    Graph::default()
        .input("x", DataType::Int64, &["n"])
        .tensor(onnx::f32s("table", &[3], &[1.0, 2.0, 3.0]))
        .node("Gather", &["table", "x"], "y")
        .output("y", DataType::Float, &["n"])
        .bytes()
}

#[tokio::test]
async fn a_request_that_fails_with_nobody_on_board_is_not_run_again() {
    let service = service(one_lane());
    let lease = load(&service, "t", &model("m", gather(), batching(3, Duration::ZERO))).await.unwrap();
    let bad = crate::i64s(&[5000], &[1]);
    let mut operators = vec![];
    for alone in [true, false] {
        let before = service.stats().operators;
        let failed = run(&service, &lease, &bad, Job { alone, ..Job::default() }).await.unwrap_err();
        assert!(matches!(failed, Error::Engine(_) | Error::EnginePanic(_)), "{failed}");
        operators.push(service.stats().operators - before);
    }
    assert_eq!(operators[0], operators[1]);
    is_at_rest(&service);
}

#[tokio::test]
async fn a_request_that_fails_does_not_fail_those_who_rode_with_it() {
    let service = service(one_lane());
    let lease =
        load(&service, "t", &model("m", gather(), batching(3, Duration::from_secs(60)))).await.unwrap();
    let inputs = [0, 5000, 2].map(|row| crate::i64s(&[row], &[1]));
    let answers = join_all(inputs.iter().map(|input| run(&service, &lease, input, Job::default()))).await;
    let [first, second, third] = <[_; 3]>::try_from(answers).unwrap();
    assert_eq!(floats(&first.unwrap().outputs[0].1), [1.0]);
    assert!(matches!(second.unwrap_err(), Error::Engine(_) | Error::EnginePanic(_)));
    assert_eq!(floats(&third.unwrap().outputs[0].1), [3.0]);
    assert_eq!(service.stats().batches, 0, "all were run alone in the end");
    is_at_rest(&service);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_failed_a_batch_rides_with_nobody_else_for_a_while() {
    let service = service(one_lane());
    let policy = ModelPolicy { public: true, ..batching(2, Duration::from_secs(60)) };
    let source = model("m", gather(), policy);
    let mut leases = vec![];
    for tenant in ["bad", "good", "other"] {
        leases.push(load(&service, tenant, &source).await.unwrap());
    }
    let [bad, good, other] = [0, 1, 2].map(|at: usize| &leases[at]);
    // How many rode with each of those that come at one time; none if it failed.
    let ride = async |requests: &[(&Lease, i64)]| -> Vec<Option<u64>> {
        let inputs: Vec<Tensor> = requests.iter().map(|(_, row)| crate::i64s(&[*row], &[1])).collect();
        let runs = requests.iter().zip(&inputs);
        let runs = runs.map(|((lease, _), input)| run(&service, lease, input, Job::default()));
        join_all(runs).await.into_iter().map(|answer| Some(answer.ok()?.cost.batch)).collect()
    };
    assert_eq!(ride(&[(bad, 5000), (good, 0)]).await, [None, Some(1)]);
    let four = [(good, 0), (bad, 5000), (other, 1), (bad, 2)];
    assert_eq!(ride(&four).await, [Some(2), None, Some(2), Some(1)], "it fails only its own");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ride(&[(bad, 0), (good, 1)]).await, [Some(2); 2]);
    assert_eq!(ride(&[(bad, 5000), (good, 0)]).await, [None, Some(1)]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ride(&four).await, [Some(2), None, Some(2), Some(1)], "the second time it is for longer");
    is_at_rest(&service);
}

#[tokio::test]
async fn a_tenants_quota_does_not_fail_those_who_ride_with_it() {
    let service = service(one_lane());
    service.set_tenant("small", TenantShare { memory: Some(1000), ..TenantShare::default() });
    let policy = ModelPolicy { public: true, ..batching(2, Duration::from_secs(60)) };
    let source = model("m", chain(3, "256"), policy);
    let (small, large) =
        (load(&service, "small", &source).await.unwrap(), load(&service, "large", &source).await.unwrap());
    let input = values(&[1, 256], 1);
    let (refused, answered) = futures::join!(
        run(&service, &small, &input, Job::default()),
        run(&service, &large, &input, Job::default())
    );
    let refused = refused.unwrap_err();
    let Error::TenantMemory { tenant, requested, used, limit } = &refused else { panic!("{refused}") };
    assert_eq!((tenant.as_str(), *limit), ("small", 1000));
    assert!(used + requested > 1000);
    assert!(answered.is_ok());
    service.set_tenant("small", TenantShare::default());
    let alone = Job { alone: true, ..Job::default() };
    assert!(run(&service, &small, &input, alone).await.is_ok(), "a quota is changed live");
    is_at_rest(&service);
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

#[tokio::test]
async fn who_wants_to_be_alone_rides_with_nobody() {
    let service = service(one_lane());
    let lease =
        load(&service, "t", &model("m", chain(2, "8"), batching(8, Duration::from_secs(60)))).await.unwrap();
    let alone = Job { alone: true, ..Job::default() };
    let answer = run(&service, &lease, &values(&[1, 8], 1), alone).await.unwrap();
    assert_eq!((answer.cost.batch, service.stats().batches), (1, 0));
}

#[tokio::test]
async fn a_batch_takes_no_more_than_so_many_bytes() {
    let service = service(one_lane());
    let policy = batching(3, Duration::from_secs(60));
    let lease = load(&service, "t", &model("m", chain(1, "width"), policy)).await.unwrap();
    // The first two fill it, and leave then. The last one is too large for any other to ride with it.
    let inputs = [&[1, 6 << 20][..], &[1, 6 << 20], &[1, 12 << 20]].map(f32s);
    let runs = inputs.iter().map(|input| run(&service, &lease, input, Job::default()));
    let batches: Vec<u64> =
        join_all(runs).await.into_iter().map(|answer| answer.unwrap().cost.batch).collect();
    assert_eq!(batches, [2, 2, 1]);
}

#[tokio::test]
async fn zeros_fill_a_batch_and_nobody_sees_them() {
    let service = service(one_lane());
    let batching = Batching {
        max_batch: 8,
        preferred: vec![4],
        padding: true,
        max_queue_delay: Duration::from_millis(20),
    };
    let policy = ModelPolicy { batching: Arc::new(batching), ..ModelPolicy::default() };
    let lease = load(&service, "t", &model("m", product("n", 8), policy)).await.unwrap();
    let input = values(&[1, 8], 1);
    let runs = [&input, &input].map(|input| run(&service, &lease, input, Job::default()));
    for answer in join_all(runs).await {
        let answer = answer.unwrap();
        assert_eq!((answer.cost.batch, answer.cost.padding, answer.cost.rows), (4, 2, 1));
        assert_eq!(answer.outputs[0].1.shape(), [1, 8]);
    }
}

#[tokio::test]
async fn zeros_are_charged_to_those_who_made_them_necessary() {
    let service = service(one_lane());
    let batching = Batching {
        max_batch: 8,
        preferred: vec![2, 6],
        padding: true,
        max_queue_delay: Duration::from_millis(20),
    };
    let policy = ModelPolicy { public: true, batching: Arc::new(batching), ..ModelPolicy::default() };
    let source = model("m", chain(50, "1000"), policy);
    let (one, two) =
        (load(&service, "one", &source).await.unwrap(), load(&service, "two", &source).await.unwrap());
    let (row, rows) = (values(&[1, 1000], 1), values(&[2, 1000], 1));
    let (first, second) =
        futures::join!(run(&service, &one, &row, Job::default()), run(&service, &two, &rows, Job::default()));
    assert_eq!((first.unwrap().cost.padding, second.unwrap().cost.padding), (3, 3));
    // Without the second there would have been no need for more than one.
    let by_tenant = &service.stats().devices[0].device_time;
    let [one, two] = ["one", "two"].map(|tenant| by_tenant[&Arc::from(tenant)]);
    assert!(two > 4 * one && two < 6 * one, "{one} and {two}, one to five by what is billed");
}

#[tokio::test]
async fn a_model_without_a_row_for_each_row_is_run_alone_from_then_on() {
    // The number of rows of its output is not that of its input.
    let rows = Graph::default()
        .input("x", DataType::Float, &["n"])
        .node_with("Concat", &["x", "x"], "y", vec![onnx::int("axis", 0)])
        .output("y", DataType::Float, &["m"])
        .bytes();
    let service = service(one_lane());
    let lease = load(&service, "t", &model("m", rows, batching(2, Duration::from_secs(60)))).await.unwrap();
    let input = values(&[1], 1);
    for _ in 0..2 {
        let runs = [&input, &input].map(|input| run(&service, &lease, input, Job::default()));
        for answer in join_all(runs).await {
            assert_eq!(answer.unwrap().outputs[0].1.shape(), [2]);
        }
    }
    assert_eq!(service.stats().batches, 0);
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
    assert!(answer.cost.operators >= 3);
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
    let deadline = Some(tokio::time::Instant::now() + answer.cost.device / 10);
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
        let deadline = Some(tokio::time::Instant::now() + answer.cost.device / 10);
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
        service.keep(&graph.owner, &model(&graph.digest, vec![], policy), Keep::default());
    }
    is_at_rest(&service);
    assert_eq!(service.stats().memory, 0);
    let stats = service.stats();
    assert_eq!(stats.loads, stats.unloads + stats.evictions);
}

/// Three tenants that always have work get device time by their weights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_time_follows_weights() {
    let service = service(one_lane());
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
