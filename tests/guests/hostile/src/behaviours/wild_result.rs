//! Asks for a result where it has no memory.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    // SAFETY: none. The host must notice.
    unsafe { raw::load_by_name(0, 0, 0xFFFF_FFF8) };
    crate::answer(out, "written");
}
