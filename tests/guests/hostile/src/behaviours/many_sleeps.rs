//! Asks for as many timers as it can get, to wait for all at once.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::io::poll::poll;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let timers: Vec<_> =
        (0..100_000).map(|_| monotonic_clock::subscribe_duration(3_600_000_000_000)).collect();
    let ready = poll(&timers.iter().collect::<Vec<_>>());
    crate::answer(out, &format!("{} timers, {} ready", timers.len(), ready.len()));
}
