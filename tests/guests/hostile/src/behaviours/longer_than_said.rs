//! Sends more than its content-length says: what follows would be the next answer on the connection.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingBody, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let headers = Fields::from_list(&[("content-length".to_owned(), b"4".to_vec())]).unwrap();
    let (body, stream) = crate::begin(out, headers);
    let _ = stream.blocking_write_and_flush(b"goodHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil");
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}
