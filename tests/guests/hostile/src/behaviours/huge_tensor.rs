//! Makes one tensor of more than a hundred megabytes.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let data = vec![0; 120 << 20];
    let tensor = Tensor::new(&[120 << 20], TensorType::U8, &data);
    crate::answer(out, &format!("kept {} bytes", tensor.data().len()));
}
