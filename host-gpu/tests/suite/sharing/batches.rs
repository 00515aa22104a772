//! Requests that ride together, as rows of one batch.

use std::path::Path;

use super::*;

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
            assert!(ridden.cost.device() > Duration::ZERO);
            device += ridden.cost.device();
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
    let device = &service.stats().devices[0];
    let charged = tenants.map(|tenant| device.device_time[&Arc::from(tenant)]);
    let billed = [0, 1, 2].map(|at: usize| ridden[at].cost.used.device);
    assert_eq!((billed, device.unbilled), (charged, 0));
    assert_eq!(billed.iter().sum::<u64>(), device.used, "to the nanosecond");
    // The parts are of each operator's time, in whole nanoseconds.
    let [one, three, four] = billed;
    let operators = ridden[0].cost.used.operators + 2;
    assert!(three.abs_diff(3 * one) <= 3 * operators && four.abs_diff(4 * one) <= 4 * operators);
    let peaks: u64 = ridden.iter().map(|inference| inference.cost.used.peak).sum();
    assert_eq!(peaks, 2 * 8 * 256 * 4, "what an operator reads and what it writes");
}

/// `y = table[x]`, with a table of three rows: a request that asks for another one fails, whoever it rides with.
pub fn gather() -> Vec<u8> {
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
