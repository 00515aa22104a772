//! Gives requests that it never drops authorities of a megabyte, and then sleeps.

use std::time::Duration;

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    let long = "x".repeat(1 << 20);
    for _ in 0..40 {
        let request = OutgoingRequest::new(Fields::new());
        let _ = request.set_authority(Some(&long));
        std::mem::forget(request);
    }
    std::thread::sleep(Duration::from_secs(3600));
}
