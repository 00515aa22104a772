//! Reads where there is no memory.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let beyond = std::ptr::without_provenance::<u64>(0xFFFF_FF00);
    // SAFETY: none. It must trap.
    let read = unsafe { beyond.read_volatile() };
    crate::answer(out, &format!("read {read}"));
}
