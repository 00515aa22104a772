//! Writes an answer for as long as anybody takes it.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (_body, stream) = crate::begin(out, Fields::new());
    while stream.blocking_write_and_flush(&[b'x'; 4096]).is_ok() {}
}
