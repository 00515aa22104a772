//! Makes headers of a list whose entries are all the same bytes.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let (name, value) = ("x-same", vec![b'x'; 64 << 10]);
    let entry = (name.as_ptr().addr(), name.len(), value.as_ptr().addr(), value.len());
    let entries = vec![entry; 100_000];
    let mut result = [0_usize; 2];
    // SAFETY: the entries and the place for the result are this guest's own.
    unsafe { raw::fields_from_list(entries.as_ptr().addr(), entries.len(), result.as_mut_ptr().addr()) };
    crate::answer(out, "copied");
}
