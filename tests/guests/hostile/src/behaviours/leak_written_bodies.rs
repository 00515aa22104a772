//! Writes to the bodies of requests that it never sends and never drops: what is written waits in the host.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        let request = OutgoingRequest::new(Fields::new());
        if let Ok(body) = request.body()
            && let Ok(stream) = body.write()
        {
            while let Ok(room @ 1..) = stream.check_write() {
                let piece = vec![b'x'; usize::try_from(room).unwrap_or(0).min(1 << 20)];
                if stream.write(&piece).is_err() {
                    break;
                }
            }
        }
        std::mem::forget(request);
    }
}
