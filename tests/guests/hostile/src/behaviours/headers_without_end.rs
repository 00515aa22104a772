//! Adds headers to its answer for ever.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::new();
    for number in 0_u64.. {
        if let Err(error) = headers.append(&format!("x-{number}"), &[b'x'; 100]) {
            return crate::answer(out, &format!("refused: {error:?}"));
        }
    }
}
