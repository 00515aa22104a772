//! What models may need, and what hostile ones come to: one binary, a module per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bytes;
mod data;
mod examining;
mod limits;
mod onnx;
mod real;
mod sharing;

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use weir_gpu::{
    DeviceConfig, DeviceKind, Dtype, Error, Examiner, Format, InProcess, Inference, Job, Lease, ModelLimits,
    ModelSource, Report, Service, Tensor,
};

/// What an examiner was asked for: the shapes of each examination.
type Asked = Arc<Mutex<Vec<Option<Vec<Vec<usize>>>>>>;

/// Examines in this process, and remembers what it was asked for.
struct Counting {
    inner: InProcess,
    asked: Asked,
}

impl Examiner for Counting {
    fn examine(
        &self,
        model: &ModelSource,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> BoxFuture<'static, Result<Report, Error>> {
        self.asked.lock().unwrap().push(shapes.clone());
        self.inner.examine(model, shapes)
    }
}

/// A service with these limits, and what its examiner is asked for.
fn service(limits: ModelLimits) -> (Service, Asked) {
    let asked = Asked::default();
    let examiner = Counting { inner: InProcess(limits), asked: Arc::clone(&asked) };
    let config = DeviceConfig { model: limits, ..DeviceConfig::default() };
    (Service::new(&config, Arc::new(examiner)), asked)
}

fn memory(most: u64) -> ModelLimits {
    ModelLimits { memory: most, ..ModelLimits::default() }
}

fn cost(most: u64) -> ModelLimits {
    ModelLimits { operator_cost: most, ..ModelLimits::default() }
}

async fn load(service: &Service, bytes: &[u8]) -> Result<Lease, Error> {
    let model = ModelSource::from_memory("digest", Format::Onnx, bytes.to_vec().into());
    service.load("tenant", &model, DeviceKind::Cpu).await
}

fn f32s(shape: &[usize]) -> Tensor {
    let elements: usize = shape.iter().product();
    Tensor::new(Dtype::F32, shape.to_vec(), vec![0; elements * 4].into()).unwrap()
}

fn i64s(values: &[i64], shape: &[usize]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(Dtype::I64, shape.to_vec(), data.into()).unwrap()
}

async fn infer(service: &Service, lease: &Lease, inputs: &[(&str, Tensor)]) -> Result<Inference, Error> {
    let inputs = inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    service.infer(lease, inputs, Job::default()).await
}

fn examine(bytes: &[u8], limits: &ModelLimits) -> Result<Report, Error> {
    weir_gpu::examine(Format::Onnx, bytes, None, limits)
}

/// The text of a refusal.
fn refusal(bytes: &[u8]) -> String {
    examine(bytes, &ModelLimits::default()).unwrap_err().to_string()
}
