//! Calls a function that is not there, through the table.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let nowhere = std::hint::black_box(0x7FFF_FFFF_usize);
    // SAFETY: none. It must trap.
    let call = unsafe { std::mem::transmute::<usize, extern "C" fn() -> u32>(nowhere) };
    crate::answer(out, &format!("called {}", call()));
}
