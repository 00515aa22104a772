//! Says that its answer has more bytes than there are.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let length = u64::MAX.to_string().into_bytes();
    let headers = Fields::from_list(&[("content-length".to_owned(), length)]).unwrap();
    let (_body, stream) = crate::begin(out, headers);
    let _ = stream.blocking_write_and_flush(b"some");
}
