//! Loads a model of lists that are all the same bytes: the host would copy far more than the guest has.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::raw;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let bytes = vec![0_u8; 8 << 20];
    let lists = vec![(bytes.as_ptr().addr(), bytes.len()); 100_000];
    let mut result = [0_usize; 2];
    // SAFETY: the lists and the place for the result are this guest's own.
    unsafe { raw::load(lists.as_ptr().addr(), lists.len(), 1, 0, result.as_mut_ptr().addr()) };
    crate::answer(out, "copied");
}
