//! Models and tensors, by `wasi:nn`.

use crate::Dtype;
use crate::bindings::wasi::nn::errors::Error as NnError;
use crate::bindings::wasi::nn::graph::load_by_name;
use crate::bindings::wasi::nn::inference::GraphExecutionContext;
use crate::bindings::wasi::nn::tensor::{Tensor as HostTensor, TensorType};
use crate::host::NnFailure;

#[derive(Debug)]
pub struct Tensor(HostTensor);

impl Tensor {
    pub fn new(shape: &[u32], dtype: Dtype, bytes: &[u8]) -> Self {
        let dtype = match dtype {
            Dtype::F16 => TensorType::Fp16,
            Dtype::F32 => TensorType::Fp32,
            Dtype::F64 => TensorType::Fp64,
            Dtype::Bf16 => TensorType::Bf16,
            Dtype::U8 => TensorType::U8,
            Dtype::I32 => TensorType::I32,
            Dtype::I64 => TensorType::I64,
        };
        Self(HostTensor::new(shape, dtype, bytes))
    }

    pub fn shape(&self) -> Vec<u32> {
        self.0.dimensions()
    }

    pub fn dtype(&self) -> Dtype {
        match self.0.ty() {
            TensorType::Fp16 => Dtype::F16,
            TensorType::Fp32 => Dtype::F32,
            TensorType::Fp64 => Dtype::F64,
            TensorType::Bf16 => Dtype::Bf16,
            TensorType::U8 => Dtype::U8,
            TensorType::I32 => Dtype::I32,
            TensorType::I64 => Dtype::I64,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.data()
    }
}

#[derive(Debug)]
pub struct Graph(GraphExecutionContext);

impl Graph {
    pub fn open(name: &str) -> Result<Self, NnFailure> {
        let context = load_by_name(name).and_then(|graph| graph.init_execution_context());
        context.map(Self).map_err(nn_failure)
    }

    pub fn run(&self, inputs: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, NnFailure> {
        let inputs = inputs.into_iter().map(|(name, tensor)| (name, tensor.0)).collect();
        let outputs = self.0.compute(inputs).map_err(nn_failure)?;
        Ok(outputs.into_iter().map(|(name, tensor)| (name, Tensor(tensor))).collect())
    }
}

fn nn_failure(error: NnError) -> NnFailure {
    (error.code(), error.data())
}
