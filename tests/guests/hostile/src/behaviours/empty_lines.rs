//! Logs nothing, in very many lines.

use std::io::Write;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    for _ in 0..100 {
        let _ = std::io::stderr().write_all(&[b'\n'; 64 << 10]);
    }
    crate::answer(out, "logged nothing");
}
