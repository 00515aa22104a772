//! Gives a model inputs that it does not have, none, and the same one twice.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::graph::load_by_name;
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let long = "x".repeat(1 << 20);
    let wrong: [&[&str]; 6] = [&[], &[""], &["y"], &["x", "x"], &["x", "y"], &[&long]];
    let told = wrong.map(|names| {
        let inputs = names.iter().map(|name| ((*name).to_owned(), Tensor::new(&[1], TensorType::Fp32, &[0; 4])));
        let session = load_by_name("double").and_then(|graph| graph.init_execution_context());
        match session.and_then(|session| session.compute(inputs.collect())) {
            Ok(outputs) => format!("{} outputs", outputs.len()),
            Err(error) => format!("{:?}", error.code()),
        }
    });
    crate::answer(out, &told.join("; "));
}
