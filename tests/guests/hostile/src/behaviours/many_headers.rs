//! Answers with as many headers as fit: more than a client reads.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::new();
    for number in 0..20_000 {
        if headers.append(&format!("x{number}"), b"").is_err() {
            break;
        }
    }
    drop(crate::begin(out, headers));
}
