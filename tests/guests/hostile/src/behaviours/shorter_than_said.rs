//! Sends less than its content-length says.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingBody, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::from_list(&[("content-length".to_owned(), b"400".to_vec())]).unwrap();
    let (body, stream) = crate::begin(out, headers);
    let _ = stream.blocking_write_and_flush(b"short");
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}
