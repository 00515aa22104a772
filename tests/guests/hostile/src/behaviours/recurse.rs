//! Recurses without end, with frames on the stack in its own memory.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

#[inline(never)]
#[allow(unconditional_recursion)]
fn deeper(level: u64) -> u64 {
    let mut frame = [level; 64];
    let frame = std::hint::black_box(&mut frame);
    deeper(level + 1) ^ frame[(level % 64) as usize]
}

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    crate::answer(out, &deeper(0).to_string());
}
