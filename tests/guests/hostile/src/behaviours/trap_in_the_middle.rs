//! Traps with half of its answer sent.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (_body, stream) = crate::begin(out, Fields::new());
    let _ = stream.blocking_write_and_flush(b"half");
    core::arch::wasm32::unreachable()
}
