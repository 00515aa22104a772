//! The door of `weir-gpu`, called directly: what shares a device is measured without functions before it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tract_onnx::prelude::{Framework, InferenceModelExt, IntoRunnable, TValue, TypedRunnableModel, tvec};
use weir_gpu::{DeviceConfig, DeviceKind, Dtype, Error, Format, InProcess, Inference, Job, Lease};
use weir_gpu::{ModelPolicy, ModelSource, Service, Tensor};

/// A device of one lane, as a GPU is.
pub fn one_lane() -> DeviceConfig {
    DeviceConfig { cpu_lanes: NonZeroUsize::new(1), queue: 100_000, ..DeviceConfig::default() }
}

pub fn service(config: &DeviceConfig) -> Service {
    Service::new(config, Arc::new(InProcess(config.model)))
}

pub fn model(name: &str, bytes: Vec<u8>, policy: ModelPolicy) -> ModelSource {
    ModelSource { policy, ..ModelSource::from_memory(name, Format::Onnx, bytes.into()) }
}

pub async fn load(service: &Service, tenant: &str, model: &ModelSource) -> Result<Arc<Lease>, Error> {
    service.load(tenant, model, DeviceKind::Cpu).await.map(Arc::new)
}

/// Runs the graph on its only input.
pub async fn infer(service: &Service, lease: &Lease, input: &Tensor, job: Job) -> Result<Inference, Error> {
    let name = lease.signature().inputs.first().map(|input| input.name.clone()).unwrap_or_default();
    service.infer(lease, vec![(name, input.clone())], job).await
}

pub fn f32s(shape: &[usize]) -> anyhow::Result<Tensor> {
    let count: usize = shape.iter().product();
    let data: Vec<u8> = (0..count).flat_map(|place| ((place % 97) as f32 / 97.0).to_le_bytes()).collect();
    Ok(Tensor::new(Dtype::F32, shape.to_vec(), data.into())?)
}

/// What magika reads: the first bytes of a file, as numbers.
pub fn tokens() -> anyhow::Result<Tensor> {
    let data: Vec<u8> = (0..2048_i32).flat_map(|place| (place % 257).to_le_bytes()).collect();
    Ok(Tensor::new(Dtype::I32, vec![1, 2048], data.into())?)
}

/// The bare engine, with a graph for one shape.
pub fn bare(bytes: &[u8], input: &Tensor) -> anyhow::Result<(Arc<TypedRunnableModel>, TValue)> {
    let given = match input.dtype() {
        Dtype::I32 => numbers(input, i32::from_le_bytes)?,
        _ => numbers(input, f32::from_le_bytes)?,
    };
    let mut model = tract_onnx::onnx().model_for_read(&mut std::io::Cursor::new(bytes))?;
    model
        .set_input_fact(0, tract_onnx::prelude::InferenceFact::dt_shape(given.datum_type(), input.shape()))?;
    let model = model.into_optimized()?.into_runnable()?;
    model.run(tvec!(given.clone().into()))?;
    Ok((model, given.into()))
}

fn numbers<T: tract_onnx::prelude::Datum + Copy>(
    input: &Tensor,
    read: fn([u8; 4]) -> T,
) -> anyhow::Result<tract_onnx::prelude::Tensor> {
    let (chunks, _) = input.data().as_chunks::<4>();
    let values: Vec<T> = chunks.iter().map(|bytes| read(*bytes)).collect();
    tract_onnx::prelude::Tensor::from_shape(input.shape(), &values)
}
