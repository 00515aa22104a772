//! Sends the head of an answer, and then nothing.

use std::time::Duration;

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (_body, stream) = crate::begin(out, Fields::new());
    let _ = stream.blocking_write_and_flush(b"wait");
    std::thread::sleep(Duration::from_secs(3600));
}
