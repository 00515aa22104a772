//! Logs one line that has no end.

use std::io::Write;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let piece = [b'x'; 4096];
    for _ in 0..4096 {
        let _ = std::io::stdout().write_all(&piece);
    }
    let _ = std::io::stdout().flush();
    crate::answer(out, "sixteen MiB without an end");
}
