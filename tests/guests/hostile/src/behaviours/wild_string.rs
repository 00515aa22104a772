//! Names a model with bytes that are not in its memory.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let mut result = [0_usize; 2];
    // SAFETY: none. The host must notice.
    unsafe { raw::load_by_name(0xFFFF_FFF0, 0x7FFF_FFFF, result.as_mut_ptr().addr()) };
    crate::answer(out, "read");
}
