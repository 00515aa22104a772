//! Writes a pattern all over its memory, so that one that gets the memory after it could find some. `?mib=` says how
//! much it has. Looks for it as `seek` does, to show that it can be found.

use core::arch::wasm32::{memory_grow, memory_size};

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::PATTERN;

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let mib: usize = crate::query(&request, "mib").and_then(|mib| mib.parse().ok()).unwrap_or(4);
    let start = memory_grow::<0>(mib * 16);
    if start == usize::MAX {
        return crate::answer(out, "no memory");
    }
    let words = (start << 16..memory_size::<0>() << 16).step_by(8);
    for address in words {
        // SAFETY: these pages are new, and nothing else uses them.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(PATTERN) };
    }
    stack();
    let found = crate::count_pattern();
    let enough = found >= mib << 17;
    crate::answer(out, &if enough { format!("filled and found {mib} MiB") } else { format!("found {found}") });
}

/// The stack too.
#[inline(never)]
fn stack() {
    std::hint::black_box(&mut [PATTERN; 24 << 10]);
}
