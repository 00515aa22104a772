//! Tensors whose sizes depend on data.

use weir_gpu::{Error, ModelLimits};

use crate::onnx::{self, DataType, Graph};
use crate::{examine, i64s, infer, load, memory, service};

/// `y = range(0, end, 1) + 1`
fn range() -> Vec<u8> {
    Graph::default()
        .input("end", DataType::Int64, &[])
        .tensor(onnx::i64s("start", &[], &[0]))
        .tensor(onnx::i64s("step", &[], &[1]))
        .node("Range", &["start", "end", "step"], "r")
        .node("Add", &["r", "step"], "y")
        .output("y", DataType::Int64, &["n"])
        .bytes()
}

#[tokio::test]
async fn a_range_is_refused_before_it_is_made_and_the_service_serves_on() {
    let (service, _) = service(memory(1 << 20));
    let lease = load(&service, &range()).await.unwrap();
    let end = |value: i64| [("end", i64s(&[value], &[]))];
    let made = infer(&service, &lease, &end(3)).await.unwrap();
    assert_eq!(made.outputs[0].1, i64s(&[1, 2, 3], &[3]));
    for huge in [1 << 17, 1 << 37, i64::MAX] {
        let refused = infer(&service, &lease, &end(huge)).await.unwrap_err();
        let Error::ModelMemory { needed, most } = refused else { panic!("{refused}") };
        assert!(needed > most && most == 1 << 20);
    }
    assert!(infer(&service, &lease, &end(1000)).await.is_ok());
    let stats = service.stats();
    assert_eq!((stats.inferences, stats.failed_inferences), (2, 3));
    assert_eq!(stats.devices[0].busy, 0);
}

#[tokio::test]
async fn the_largest_of_more_than_there_are_is_refused() {
    let (service, _) = service(memory(1 << 20));
    let mut graph = Graph::default()
        .input("x", DataType::Int64, &["4"])
        .input("k", DataType::Int64, &["1"])
        .output("values", DataType::Int64, &["k"]);
    graph = graph.node("TopK", &["x", "k"], "values places");
    let lease = load(&service, &graph.bytes()).await.unwrap();
    let inputs = |k: i64| [("x", i64s(&[4, 7, 1, 9], &[4])), ("k", i64s(&[k], &[1]))];
    let two = infer(&service, &lease, &inputs(2)).await.unwrap();
    assert_eq!(two.outputs[0].1, i64s(&[9, 7], &[2]));
    for k in [1 << 40, -1] {
        let refused = infer(&service, &lease, &inputs(k)).await.unwrap_err();
        assert!(matches!(refused, Error::ModelMemory { .. }), "{refused}");
    }
    assert!(infer(&service, &lease, &inputs(1)).await.is_ok());
}

#[tokio::test]
async fn what_is_not_zero_counts_as_all_that_there_is() {
    let model = Graph::default()
        .input("x", DataType::Int64, &["n"])
        .node("NonZero", &["x"], "y")
        .output("y", DataType::Int64, &["1", "m"])
        .bytes();
    let (service, _) = service(memory(8 * 100 + 3 * 8 * 100));
    let lease = load(&service, &model).await.unwrap();
    let some = infer(&service, &lease, &[("x", i64s(&[0, 5, 0, 6], &[4]))]).await.unwrap();
    assert_eq!(some.outputs[0].1, i64s(&[1, 3], &[1, 2]));
    assert!(infer(&service, &lease, &[("x", i64s(&[1; 100], &[100]))]).await.is_ok());
    let refused = infer(&service, &lease, &[("x", i64s(&[1; 101], &[101]))]).await.unwrap_err();
    assert!(matches!(refused, Error::ModelMemory { .. }), "{refused}");
}

#[tokio::test]
async fn what_comes_after_a_size_that_depends_on_data_is_watched_too() {
    // All pairs of the numbers below `end`.
    let model = Graph::default()
        .input("end", DataType::Int64, &[])
        .tensor(onnx::i64s("start", &[], &[0]))
        .tensor(onnx::i64s("step", &[], &[1]))
        .tensor(onnx::i64s("column", &[2], &[-1, 1]))
        .node("Range", &["start", "end", "step"], "r")
        .node("Reshape", &["r", "column"], "c")
        .node("Mul", &["r", "c"], "y")
        .output("y", DataType::Int64, &["n", "n"])
        .bytes();
    let (service, _) = service(memory(1 << 20));
    let lease = load(&service, &model).await.unwrap();
    let end = |value: i64| [("end", i64s(&[value], &[]))];
    assert!(infer(&service, &lease, &end(100)).await.is_ok());
    // The range itself is small.
    let refused = infer(&service, &lease, &end(1000)).await.unwrap_err();
    assert!(matches!(refused, Error::ModelMemory { needed: 8_000_000.., .. }), "{refused}");
}

#[tokio::test]
async fn shapes_that_are_data_are_refused_with_the_operators_name() {
    let shaped = |operator: &str, inputs: &[&str]| {
        Graph::default()
            .input("shape", DataType::Int64, &["2"])
            .tensor(onnx::i64s("x", &[2, 1], &[1, 2]))
            .node(operator, inputs, "y")
            .output("y", DataType::Int64, &["a", "b"])
            .bytes()
    };
    for (operator, inputs) in
        [("Expand", &["x", "shape"][..]), ("Tile", &["x", "shape"]), ("ConstantOfShape", &["shape"])]
    {
        let (service, _) = service(ModelLimits::default());
        let model = shaped(operator, inputs);
        let refused = load(&service, &model).await.unwrap_err();
        assert!(matches!(refused, Error::InvalidModel(_)), "{refused}");
        assert!(refused.to_string().contains(operator), "{refused}");
        assert_eq!(service.stats().failed_loads, 1);
        assert!(load(&service, &range()).await.is_ok(), "it serves on");
    }
}

/// `if cond { x + sum(then(…)) } else { x }`, with what `then` adds to a branch in its `t`.
fn in_a_branch(then: impl Fn(Graph) -> Graph) -> Vec<u8> {
    let sum = vec![onnx::int("keepdims", 0)];
    let then = then(Graph::default())
        .node_with("ReduceSum", &["t"], "sum", sum)
        .node("Add", &["x", "sum"], "then")
        .output("then", DataType::Int64, &["2"]);
    let otherwise = Graph::default().node("Identity", &["x"], "else").output("else", DataType::Int64, &["2"]);
    let attributes = vec![then.attribute("then_branch"), otherwise.attribute("else_branch")];
    Graph::default()
        .input("cond", DataType::Bool, &[])
        .input("x", DataType::Int64, &["2"])
        .input("end", DataType::Int64, &[])
        .node("Add", &["end", "end"], "twice")
        .node_with("If", &["cond"], "y", attributes)
        .output("y", DataType::Int64, &["2"])
        .bytes()
}

#[test]
fn inside_a_branch_a_size_that_depends_on_data_needs_a_bound() {
    let range = in_a_branch(|then| {
        then.tensor(onnx::i64s("start", &[], &[0])).tensor(onnx::i64s("step", &[], &[1])).node(
            "Range",
            &["start", "twice", "step"],
            "t",
        )
    });
    let refused = examine(&range, &ModelLimits::default()).unwrap_err();
    let Error::Unbounded { operator } = &refused else { panic!("{refused}") };
    assert!(operator.contains("Range"), "{refused}");
    let selected = in_a_branch(|then| then.node("NonZero", &["x"], "t"));
    let report = examine(&selected, &ModelLimits::default()).unwrap();
    assert!((1..1000).contains(&report.memory), "{report:?}");
}

#[test]
fn what_is_larger_on_the_way_than_at_the_end_counts_as_large() {
    // Once along one axis a million times, then none of it along the other.
    let model = Graph::default()
        .input("x", DataType::Float, &["n", "8"])
        .tensor(onnx::i64s("repeats", &[2], &[1_000_000, 0]))
        .node("Tile", &["x", "repeats"], "y")
        .output("y", DataType::Float, &["m", "0"])
        .bytes();
    let refused = examine(&model, &memory(1 << 20)).unwrap_err();
    assert!(matches!(refused, Error::ModelMemory { needed: 32_000_000.., .. }), "{refused}");
}
