//! Reads its request's body byte by byte, with pauses.

use std::time::Duration;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let body = request.consume().unwrap();
    let stream = body.stream().unwrap();
    while stream.blocking_read(1).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    crate::answer(out, "read");
}
