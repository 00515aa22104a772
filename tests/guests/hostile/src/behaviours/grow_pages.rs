//! Grows its memory page by page until it is refused, and says how far it came.

use core::arch::wasm32::{memory_grow, memory_size};

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    while memory_grow::<0>(16) != usize::MAX {}
    crate::answer(out, &format!("refused at {} MiB", memory_size::<0>() / 16));
}
