//! Gives a shape of many axes.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

use crate::compute;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let tensor = Tensor::new(&vec![1; 1_000_000], TensorType::Fp32, &[0; 4]);
    crate::answer(out, &compute("x", tensor));
}
