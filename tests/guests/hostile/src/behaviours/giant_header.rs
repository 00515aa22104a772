//! Answers with one header of a megabyte.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::new();
    if let Err(error) = headers.append("x-giant", &vec![b'x'; 1 << 20]) {
        return crate::answer(out, &format!("refused: {error:?}"));
    }
    drop(crate::begin(out, headers));
}
