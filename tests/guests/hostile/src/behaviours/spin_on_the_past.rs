//! Waits for what is over, for ever: it is never long on the CPU at once, and never waits.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        monotonic_clock::subscribe_duration(0).block();
    }
}
