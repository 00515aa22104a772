//! Names a model with bytes that are not text.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let bytes = [0xFF_u8; 16];
    let mut result = [0_usize; 2];
    // SAFETY: none. The host must notice.
    unsafe { raw::load_by_name(bytes.as_ptr().addr(), bytes.len(), result.as_mut_ptr().addr()) };
    crate::answer(out, "read");
}
