//! Uses a handle that nobody gave it.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::Tensor;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    // SAFETY: none. The host must notice.
    let tensor = unsafe { Tensor::from_handle(12_345) };
    crate::answer(out, &format!("{:?}", tensor.dimensions()));
}
