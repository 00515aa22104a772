//! At the limit and over it: memory and cost, for graphs of one shape, of all shapes, and made per shape.

use weir_gpu::Error;

use crate::onnx::{self, DataType, Graph, enlarge, product, tanh};
use crate::{cost, examine, f32s, infer, load, memory, service};

#[tokio::test]
async fn a_graph_of_one_shape_is_judged_when_it_is_loaded() {
    // 1,000 elements in and out, 4 bytes each.
    let model = tanh(&["1000"]);
    let (roomy, _) = service(memory(8000));
    let lease = load(&roomy, &model).await.unwrap();
    assert!(infer(&roomy, &lease, &[("x", f32s(&[1000]))]).await.is_ok());
    let (tight, _) = service(memory(7999));
    let refused = load(&tight, &model).await.unwrap_err();
    assert_eq!(refused, Error::ModelMemory { needed: 8000, most: 7999 });
    assert_eq!(refused.to_string(), "the model needs 8000 bytes at one time; the most here is 7999");
}

#[tokio::test]
async fn a_costly_operator_is_refused_by_name() {
    let model = product("3", 100);
    let (roomy, _) = service(cost(30_000));
    assert!(load(&roomy, &model).await.is_ok());
    let (tight, _) = service(cost(29_999));
    let Error::OperatorCost { operator, needed, most } = load(&tight, &model).await.unwrap_err() else {
        panic!("it is about the cost")
    };
    assert_eq!((needed, most), (30_000, 29_999));
    assert!(operator.contains("MatMul"), "{operator}");
}

#[tokio::test]
async fn a_graph_of_all_shapes_is_judged_by_each_shape_before_it_runs() {
    let (service, asked) = service(memory(8000));
    let lease = load(&service, &tanh(&["n", "10"])).await.unwrap();
    for _ in 0..2 {
        assert!(infer(&service, &lease, &[("x", f32s(&[100, 10]))]).await.is_ok());
        let refused = infer(&service, &lease, &[("x", f32s(&[101, 10]))]).await.unwrap_err();
        assert_eq!(refused, Error::ModelMemory { needed: 8080, most: 8000 });
    }
    assert_eq!(asked.lock().unwrap().len(), 1, "only the load is examined");
    let operators = service.stats().operators;
    assert!(infer(&service, &lease, &[("x", f32s(&[101, 10]))]).await.is_err());
    assert_eq!(service.stats().operators, operators, "nothing ran");
}

#[tokio::test]
async fn the_cost_of_a_graph_of_all_shapes_grows_with_them() {
    let (service, _) = service(cost(30_000));
    let lease = load(&service, &product("n", 100)).await.unwrap();
    assert!(infer(&service, &lease, &[("x", f32s(&[3, 100]))]).await.is_ok());
    let refused = infer(&service, &lease, &[("x", f32s(&[4, 100]))]).await.unwrap_err();
    assert!(matches!(refused, Error::OperatorCost { needed: 40_000, most: 30_000, .. }), "{refused}");
}

/// A loop is one operator: nobody stands between its turns. Here each one adds four numbers and reshapes them.
#[tokio::test]
async fn a_loop_costs_all_its_turns() {
    let body = Graph::default()
        .input("sum", DataType::Float, &["4"])
        .input("row", DataType::Float, &["4"])
        .node("Add", &["sum", "row"], "next")
        .output("next", DataType::Float, &["4"]);
    let attributes = vec![body.attribute("body"), onnx::int("num_scan_inputs", 1)];
    let model = Graph::default()
        .input("x", DataType::Float, &["n", "4"])
        .tensor(onnx::zeros("none", &[4]))
        .node_with("Scan", &["none", "x"], "y", attributes)
        .output("y", DataType::Float, &["4"])
        .bytes();
    let (service, _) = service(cost(8000));
    let lease = load(&service, &model).await.unwrap();
    infer(&service, &lease, &[("x", f32s(&[1000, 4]))]).await.unwrap();
    let refused = infer(&service, &lease, &[("x", f32s(&[1001, 4]))]).await.unwrap_err();
    let Error::OperatorCost { operator, needed: 8008, most: 8000 } = &refused else { panic!("{refused}") };
    assert!(operator.contains("Scan"), "{refused}");
}

#[tokio::test]
async fn a_graph_made_per_shape_is_judged_when_it_is_made() {
    // 40 x 40 in, 60 x 60 out, and the widest step between them twice.
    let needed =
        weir_gpu::examine(weir_gpu::Format::Onnx, &enlarge(), Some(&[vec![1, 1, 40, 40]]), &memory(1 << 30));
    let needed = needed.unwrap();
    assert!(needed.memory > 4 * (40 * 40 + 60 * 60), "{needed:?}");
    for (most, runs) in [(needed.memory, true), (needed.memory - 1, false)] {
        let (service, _) = service(memory(most));
        let lease = load(&service, &enlarge()).await.unwrap();
        let result = infer(&service, &lease, &[("x", f32s(&[1, 1, 40, 40]))]).await;
        match result {
            Ok(_) => assert!(runs),
            Err(error) => {
                assert!(!runs);
                assert_eq!(error, Error::ModelMemory { needed: needed.memory, most });
            }
        }
        assert!(infer(&service, &lease, &[("x", f32s(&[1, 1, 8, 8]))]).await.is_ok());
    }
}

#[test]
fn tensors_count_only_while_they_live() {
    let axes = ["1000"];
    let mut graph = Graph::default().input("x0", DataType::Float, &axes);
    for step in 0..10 {
        // Softplus, because the engine does not merge it with its neighbours.
        graph = graph.node("Softplus", &[&format!("x{step}")], &format!("x{}", step + 1));
    }
    let model = graph.output("x10", DataType::Float, &axes).bytes();
    let report = examine(&model, &memory(1 << 20)).unwrap();
    assert!(report.memory < 4000 * 4, "{report:?}");
}

/// A long chain is opened, planned and run without recursion, on the small stack of an examination.
#[test]
fn a_chain_of_20_000_nodes_does_not_take_the_stack() {
    const STEPS: usize = 20_000;
    let mut graph = Graph::default().input("x0", DataType::Float, &["n", "2"]);
    for step in 0..STEPS {
        graph = graph.node("Tanh", &[&format!("x{step}")], &format!("x{}", step + 1));
    }
    let model = graph.output(&format!("x{STEPS}"), DataType::Float, &["n", "2"]).bytes();
    let report = examine(&model, &memory(1 << 20)).unwrap();
    assert_eq!((report.memory, report.operator_cost), (16, 24), "twelve for each hyperbolic tangent");
}
