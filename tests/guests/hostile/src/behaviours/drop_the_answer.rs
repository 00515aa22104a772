//! Drops its answer's body half way, instead of finishing it.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (body, stream) = crate::begin(out, Fields::new());
    let _ = stream.blocking_write_and_flush(b"half");
    drop(stream);
    drop(body);
}
