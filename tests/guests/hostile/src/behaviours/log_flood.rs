//! Logs for ever, line by line.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    for line in 0..200_000 {
        println!("line {line}");
        eprintln!("error {line}");
    }
    crate::answer(out, "flooded");
}
