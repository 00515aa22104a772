//! Makes timers that it never drops.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        std::mem::forget(monotonic_clock::subscribe_duration(1));
    }
}
