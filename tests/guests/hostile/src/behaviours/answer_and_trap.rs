//! Traps when its answer is whole.

use std::time::Duration;

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingBody, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::from_list(&[("content-length".to_owned(), b"8".to_vec())]).unwrap();
    let (body, stream) = crate::begin(out, headers);
    let _ = stream.blocking_write_and_flush(b"answered");
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
    std::thread::sleep(Duration::from_millis(50));
    core::arch::wasm32::unreachable()
}
