//! Executes the instruction that has no meaning but to fail.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    core::arch::wasm32::unreachable()
}
