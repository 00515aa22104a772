//! Answers with a status that would change the protocol of the connection.

use weir_sdk::bindings::wasi::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let response = OutgoingResponse::new(Fields::new());
    let refused: Vec<u16> =
        [0, 99, 1000, u16::MAX].into_iter().filter(|status| response.set_status_code(*status).is_err()).collect();
    if refused.len() < 4 || response.set_status_code(101).is_err() {
        return crate::answer(out, &format!("refused: {refused:?}, 101"));
    }
    let body = response.body().unwrap();
    ResponseOutparam::set(out, Ok(response));
    let stream = body.write().unwrap();
    let _ = stream.blocking_write_and_flush(b"another protocol");
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}
