//! Uses headers as if they were a tensor.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::Tensor;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let fields = Fields::new();
    // SAFETY: none. The host must notice.
    let tensor = unsafe { Tensor::from_handle(fields.handle()) };
    crate::answer(out, &format!("{:?}", tensor.data()));
}
