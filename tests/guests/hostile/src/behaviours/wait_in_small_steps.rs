//! Waits a nanosecond, for ever. The host's timers are coarser, so it computes little.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        monotonic_clock::subscribe_duration(1).block();
    }
}
