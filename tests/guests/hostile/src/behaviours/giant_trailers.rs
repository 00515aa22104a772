//! Ends its answer with trailers of a megabyte.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingBody, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let trailers = Fields::new();
    for number in 0..1000 {
        if trailers.append(&format!("x-{number}"), &[b'x'; 1000]).is_err() {
            break;
        }
    }
    let (body, stream) = crate::begin(out, Fields::new());
    let _ = stream.blocking_write_and_flush(b"body");
    drop(stream);
    let _ = OutgoingBody::finish(body, Some(trailers));
}
