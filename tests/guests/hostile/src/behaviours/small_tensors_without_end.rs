//! Makes tensors of nothing that it never drops.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        std::mem::forget(Tensor::new(&[0], TensorType::U8, &[]));
    }
}
