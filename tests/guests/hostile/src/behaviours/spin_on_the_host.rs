//! Calls cheap functions of the host for ever.

use weir_sdk::bindings::wasi::random::random::get_random_bytes;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        std::hint::black_box(get_random_bytes(4096));
    }
}
