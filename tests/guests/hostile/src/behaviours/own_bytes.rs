//! Loads a model of its own bytes, which its configuration does not allow.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::graph::{ExecutionTarget, GraphEncoding, load};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let told = match load(&[vec![8, 8]], GraphEncoding::Onnx, ExecutionTarget::Cpu) {
        Ok(_) => "loaded".to_owned(),
        Err(error) => format!("{:?}", error.code()),
    };
    crate::answer(out, &told);
}
