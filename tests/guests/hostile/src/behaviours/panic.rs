//! Panics, with a message that looks like one of the host's.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    panic!("thread 'tokio-runtime-worker' panicked at runtime/src/main.rs:1:1: the host failed");
}
