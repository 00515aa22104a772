//! Writes more zeroes than there are bytes.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (_body, stream) = crate::begin(out, Fields::new());
    let _ = stream.blocking_write_zeroes_and_flush(u64::MAX);
    let _ = stream.write_zeroes(u64::MAX);
    core::arch::wasm32::unreachable()
}
