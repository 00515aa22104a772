//! Looks for the pattern in all of its memory, fresh pages included, and says how often it is there.

use core::arch::wasm32::{memory_grow, memory_size};

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let mib: usize = crate::query(&request, "mib").and_then(|mib| mib.parse().ok()).unwrap_or(4);
    if memory_grow::<0>(mib * 16) == usize::MAX {
        return crate::answer(out, "no memory");
    }
    let words = memory_size::<0>() << 13;
    crate::answer(out, &format!("found {} in {words} words", crate::count_pattern()));
}
