//! Gives a shape whose product is more than any number holds.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

use crate::compute;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let told = [vec![u32::MAX; 8], vec![1 << 31, 1 << 31, 4], vec![0, u32::MAX, u32::MAX, u32::MAX]]
        .map(|shape| compute("x", Tensor::new(&shape, TensorType::Fp32, &[0; 4])));
    crate::answer(out, &told.join("; "));
}
