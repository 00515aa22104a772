//! Makes tensors of a megabyte that it never drops: they are kept by the host.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    let data = vec![0; 1 << 20];
    loop {
        std::mem::forget(Tensor::new(&[1 << 20], TensorType::U8, &data));
    }
}
