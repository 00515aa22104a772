//! Gives a model shapes that it does not take, and data that is not of the shape.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

use crate::compute;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let wrong: [(&[u32], usize); 5] = [(&[], 4), (&[2, 2], 16), (&[2], 4), (&[1], 8), (&[1], 3)];
    let told = wrong.map(|(shape, bytes)| compute("x", Tensor::new(shape, TensorType::Fp32, &vec![0; bytes])));
    crate::answer(out, &told.join("; "));
}
