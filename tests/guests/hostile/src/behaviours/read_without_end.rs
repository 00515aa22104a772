//! Reads and skips its request's body, as much at once as a number can say.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let body = request.consume().unwrap();
    let stream = body.stream().unwrap();
    let mut bytes = 0;
    let _ = stream.read(u64::MAX).map(|read| bytes += read.len() as u64);
    while let Ok(read) = stream.blocking_read(u64::MAX) {
        bytes += read.len() as u64;
        if let Ok(skipped) = stream.blocking_skip(u64::MAX) {
            bytes += skipped;
        }
    }
    crate::answer(out, &format!("read {bytes} bytes"));
}
