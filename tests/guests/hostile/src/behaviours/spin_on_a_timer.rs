//! Asks a timer of a nanosecond whether it is over, again and again: all of it is short calls of the host.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        let timer = monotonic_clock::subscribe_duration(1);
        while !timer.ready() {}
    }
}
