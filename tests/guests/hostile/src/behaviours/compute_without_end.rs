//! Runs its model for ever.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

use crate::compute;

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        compute("x", Tensor::new(&[1], TensorType::Fp32, &[0; 4]));
    }
}
