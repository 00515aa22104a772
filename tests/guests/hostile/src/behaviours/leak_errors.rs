//! Causes errors with long texts that it never drops.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::graph::load_by_name;

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    let name = "x".repeat(64 << 10);
    loop {
        std::mem::forget(load_by_name(&name));
    }
}
