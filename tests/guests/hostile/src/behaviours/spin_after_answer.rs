//! Answers whole, and computes for ever after that.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    crate::answer(out, "answered");
    loop {
        std::hint::black_box(0);
    }
}
