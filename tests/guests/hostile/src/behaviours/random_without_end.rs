//! Asks for more random bytes than there is memory.

use weir_sdk::bindings::wasi::random::random::get_random_bytes;
use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    crate::answer(out, &format!("{} bytes", get_random_bytes(u64::MAX).len()));
}
