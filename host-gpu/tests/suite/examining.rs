//! Who is examined when, and what ends with a panic.

use std::sync::Arc;

use weir_gpu::{
    DeviceConfig, DeviceKind, Error, Examiner, Format, InProcess, ModelLimits, ModelSource, Report, Service,
};

use crate::onnx::{DataType, Graph, enlarge, tanh};
use crate::{examine, f32s, i64s, infer, load, service};

#[tokio::test]
async fn each_new_shape_of_a_graph_made_per_shape_is_examined_once() {
    let (service, asked) = service(ModelLimits::default());
    let lease = load(&service, &enlarge()).await.unwrap();
    let shape = |size: usize| [("x", f32s(&[1, 1, size, size]))];
    let runs = (0..8).map(|_| async { infer(&service, &lease, &shape(4)).await.unwrap() });
    futures::future::join_all(runs).await;
    let expected = |size: usize| Some(vec![vec![1, 1, size, size]]);
    assert_eq!(*asked.lock().unwrap(), [None, expected(4)]);
    // More shapes than plans are kept: the first one is made again, and not examined again.
    for size in 5..20 {
        infer(&service, &lease, &shape(size)).await.unwrap();
    }
    infer(&service, &lease, &shape(4)).await.unwrap();
    let after: Vec<_> = [None].into_iter().chain((4..20).map(expected)).collect();
    assert_eq!(*asked.lock().unwrap(), after);
    // One of one element was looked at when the model was.
    infer(&service, &lease, &shape(1)).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), after.len());
}

#[tokio::test]
async fn a_model_that_was_examined_is_not_examined_again() {
    let (service, asked) = service(ModelLimits::default());
    let mut model = ModelSource::from_memory("d", Format::Onnx, tanh(&["2"]).into());
    model.examined = Some(0);
    let lease = service.load("t", &model, DeviceKind::Cpu).await.unwrap();
    assert!(infer(&service, &lease, &[("x", f32s(&[2]))]).await.is_ok());
    assert!(asked.lock().unwrap().is_empty());
    let report = service.inspect(&model).await.unwrap();
    assert_eq!(report.memory, 16);
    assert_eq!(*asked.lock().unwrap(), [None]);
}

#[tokio::test]
async fn a_hundred_loads_are_one_examination() {
    let (service, asked) = service(ModelLimits::default());
    let model = tanh(&["2"]);
    let leases = futures::future::join_all((0..100).map(|_| load(&service, &model))).await;
    assert!(leases.iter().all(Result::is_ok));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// A model that was examined is trusted for as long as the engine is the same.
#[test]
fn the_engine_is_the_one_that_is_linked() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let package = lock.split("[[package]]").find(|package| package.contains("\"tract-core\"")).unwrap();
    let version = weir_gpu::ENGINE.strip_prefix("tract ").unwrap();
    assert!(package.contains(&format!("version = \"{version}\"")), "{package}");
}

struct Dying;

impl Examiner for Dying {
    fn examine(
        &self,
        _: &ModelSource,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> futures::future::BoxFuture<'static, Result<Report, Error>> {
        let shapes = shapes.map_or("its own".to_owned(), |shapes| format!("{shapes:?}"));
        Box::pin(async move { Err(Error::Died(format!("no memory left for {shapes} shapes"))) })
    }
}

#[tokio::test]
async fn what_the_examiner_does_not_survive_is_not_opened_here() {
    let service = Service::new(&DeviceConfig::default(), Arc::new(Dying));
    let refused = load(&service, &tanh(&["2"])).await.unwrap_err();
    assert_eq!(refused.to_string(), "preparing the model failed: no memory left for its own shapes");
    let mut model = ModelSource::from_memory("d", Format::Onnx, enlarge().into());
    model.examined = Some(0);
    let lease = service.load("t", &model, DeviceKind::Cpu).await.unwrap();
    let refused = infer(&service, &lease, &[("x", f32s(&[1, 1, 4, 4]))]).await.unwrap_err();
    assert_eq!(refused.to_string(), "preparing the model failed: no memory left for [[1, 1, 4, 4]] shapes");
}

fn quotient() -> Vec<u8> {
    Graph::default()
        .input("a", DataType::Int64, &["2"])
        .input("b", DataType::Int64, &["2"])
        .node("Div", &["a", "b"], "y")
        .output("y", DataType::Int64, &["2"])
        .bytes()
}

#[tokio::test]
async fn a_panic_inside_the_engine_ends_that_job_alone() {
    // The dry run divides by zero too: made-up data is not held against the model.
    assert!(examine(&quotient(), &ModelLimits::default()).is_ok());
    let (service, _) = service(ModelLimits::default());
    let lease = load(&service, &quotient()).await.unwrap();
    let inputs = |b: i64| [("a", i64s(&[6, 8], &[2])), ("b", i64s(&[b, b], &[2]))];
    for _ in 0..2 {
        let failed = infer(&service, &lease, &inputs(0)).await.unwrap_err();
        assert!(matches!(failed, Error::EnginePanic(_)), "{failed}");
        let halves = infer(&service, &lease, &inputs(2)).await.unwrap();
        assert_eq!(halves.outputs[0].1, i64s(&[3, 4], &[2]));
    }
    assert_eq!(service.stats().devices[0].busy, 0);
}

#[tokio::test]
async fn a_panic_while_a_model_is_opened_is_an_error() {
    // The engine looks up an output that nothing makes.
    let model = Graph::default()
        .input("x", DataType::Float, &["2"])
        .node("Relu", &["x"], "y")
        .output("nothing", DataType::Float, &["2"])
        .bytes();
    let failed = examine(&model, &ModelLimits::default()).unwrap_err();
    assert!(matches!(failed, Error::EnginePanic(_)), "{failed}");
    let source = ModelSource::from_memory("d", Format::Onnx, model.into());
    let failed = InProcess(ModelLimits::default()).examine(&source, None).await.unwrap_err();
    assert!(matches!(failed, Error::EnginePanic(_)), "{failed}");
    let (service, _) = service(ModelLimits::default());
    let mut examined = source;
    examined.examined = Some(0);
    let failed = service.load("t", &examined, DeviceKind::Cpu).await.unwrap_err();
    assert!(matches!(failed, Error::EnginePanic(_)), "{failed}");
}
