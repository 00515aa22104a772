//! Waits for one timer, named four million times in one list.

use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let timer = monotonic_clock::subscribe_duration(3_600_000_000_000);
    let list = vec![timer.handle(); 4 << 20];
    let mut result = [0_usize; 2];
    // SAFETY: the list and the place for the result are this guest's own.
    unsafe { raw::poll(list.as_ptr().addr(), list.len(), result.as_mut_ptr().addr()) };
    crate::answer(out, &format!("{} ready", result[1]));
}
