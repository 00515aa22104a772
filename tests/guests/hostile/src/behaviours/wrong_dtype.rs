//! Gives a model numbers of another type.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

use crate::compute;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let types = [TensorType::Fp16, TensorType::Fp64, TensorType::Bf16, TensorType::U8, TensorType::I32, TensorType::I64];
    let told = types.map(|ty| {
        let size = match ty {
            TensorType::U8 => 1,
            TensorType::Fp16 | TensorType::Bf16 => 2,
            TensorType::Fp32 | TensorType::I32 => 4,
            TensorType::Fp64 | TensorType::I64 => 8,
        };
        compute("x", Tensor::new(&[1], ty, &vec![0; size]))
    });
    crate::answer(out, &told.join("; "));
}
